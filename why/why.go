package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"clrsnap"
	"clrsnap/internal/gather"
	"clrsnap/internal/stopped"
	"clrsnap/profile"
)

// Report is the answer, with the fields of profile.Findings.
type Report = profile.Findings

// Options say how to look. The zero value has good defaults.
type Options struct {
	// Process says how to read the process. Frames have lines if Process.Lines is set.
	Process clrsnap.Options
	// For is how long to look, between MinFor and MaxFor; 0: DefaultFor. The look takes up to two seconds longer if
	// the runtime is slow to answer.
	For time.Duration
	// NoAgent does without the agent: nothing is loaded into the process. Then only the samples of the process's
	// threads tell of allocations, exceptions and collections.
	NoAgent bool
	// Progress is called with the current step, and the progress from 0 to 1. Progress must return soon. nil: no
	// calls.
	Progress func(doing string, done float64)
}

// Bounds and default of Options.For.
const (
	DefaultFor = 4 * time.Second
	MinFor     = time.Second
	MaxFor     = 10 * time.Minute
)

func (o *Options) complete() error {
	if o.For == 0 {
		o.For = DefaultFor
	}
	if o.For < MinFor || o.For > MaxFor {
		return fmt.Errorf("%v is no time to look for: give one between %v and %v", o.For, MinFor, MaxFor)
	}
	if o.Progress == nil {
		o.Progress = func(string, float64) {}
	}
	return nil
}

// Look looks at a running process for some time and says what is wrong with the process. When ctx ends, Look returns
// the answer so far, with ctx's error. Other errors come without an answer: errors.Is finds the errors of
// clrsnap.Open in them.
func Look(ctx context.Context, pid int, o Options) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	g, err := gather.Begin(pid, (*gather.Options)(&o), func(e *gather.Evidence) bool {
		return len(stopped.Suspension(e)) > 0
	})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	err = g.Gather(ctx)
	if len(g.Looks) == 0 && !g.Held() || errors.Is(err, clrsnap.ErrMayBlock) {
		return nil, err
	}
	if err = unlessHeld(err, &g.Evidence); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		g.Incomplete, g.Ended = true, errors.Is(err, clrsnap.ErrExited)
		g.Miss("It was not looked at to the end: %v.", cmp.Or(context.Cause(ctx), err))
	}
	return (&evidence{Evidence: g.Evidence}).report(), err
}

// unlessHeld drops the error if the process is held: then the hold is the whole answer.
func unlessHeld(err error, e *gather.Evidence) error {
	if e.Held() {
		return nil
	}
	return err
}

// LookCore says what was wrong with the process of a core dump, as far as one moment tells. The errors are those of
// clrsnap.OpenCore.
func LookCore(ctx context.Context, path string, o clrsnap.CoreOptions) (*Report, error) {
	o.Permits, o.PackStacks = clrsnap.PermitsSoon, false
	p, err := clrsnap.OpenCore(ctx, path, o)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	e, err := gather.OfCore(ctx, p)
	if err != nil {
		return nil, err
	}
	return (&evidence{Evidence: *e}).report(), nil
}
