package record

import (
	"clrsnap"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clrsnap/events"
	"clrsnap/internal/bridge"
	"clrsnap/internal/link"
	"clrsnap/internal/perfevent"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

// Options say how to record. The zero value samples the use of processors
// at 99 Hz until the context or the process ends.
type Options struct {
	// Modes are what to sample; none: profile.CPU, unless there are Events.
	//
	// profile.CPU looks Rate times a second at what each processor runs: each sample
	// stands for 1/Rate of a second of CPU time. The kernel does that; no thread is
	// stopped. profile.ModeStats.Source tells how.
	//
	// profile.Wall gives every thread Rate turns a second, whatever it does. A thread
	// that is provably blocked is not stopped, and a CPU sample stands in for one that
	// runs.
	Modes []profile.Mode
	// Events are notifications to record as well, each with the stack of its thread.
	// Zero Monitor: none. Child processes report events if Subprocesses is set.
	Events events.Options
	// Rate is in samples a second, between MinRate and MaxRate; 0: 99.
	Rate float64
	// Duration ends the recording; 0: the context or the end of the process does.
	Duration time.Duration
	// Threads chooses threads by what the listing says of them; nil: all.
	Threads clrsnap.Filter
	// Subprocesses records child processes that run .NET too.
	Subprocesses bool
	// MaxCPU is how much of one processor profile.Wall may use, such as 0.1 for a
	// tenth; 0: DefaultMaxCPU. If that is too little for all threads, each is
	// sampled less often, and stands for more time: the result says so.
	MaxCPU float64
	// Progress is told from time to time how far the recording has come; nil: nobody is.
	Progress func(Progress)

	// watch, in tests, is told of every walk, whose frames are in the table, and
	// when the moment was at the earliest.
	watch func(f *frameTable, s *session.Suspension, complete bool, begin time.Duration)
}

// The bounds of Options.Rate, and the default of MaxCPU.
const (
	MinRate       = 0.1
	MaxRate       = 10_000
	DefaultRate   = 99
	DefaultMaxCPU = 0.1
)

// Progress is how far a recording has come.
type Progress struct {
	Elapsed   time.Duration
	Samples   int
	Broken    int     // of Samples
	Lost      int     // never seen
	TargetCPU float64 // processors in use by the target since the last report
	Threads   int     // at the moment
}

// ErrNoPerfEvents: the kernel does not let us sample the use of processors. If
// profile.Wall is asked for too, the recording does without, and says so.
var ErrNoPerfEvents = perfevent.ErrUnavailable

func (o *Options) complete() error {
	if o.Events.Monitor != 0 {
		complete, err := bridge.EventOptions(o.Events)
		if err != nil {
			return err
		}
		o.Events = complete.(events.Options)
		if o.Events.Hold > 0 {
			return errors.New("a recording holds no threads: use events.Subscribe for that")
		}
	} else if len(o.Modes) == 0 {
		o.Modes = []profile.Mode{profile.CPU}
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.MaxCPU == 0 {
		o.MaxCPU = DefaultMaxCPU
	}
	for _, m := range o.Modes {
		if m != profile.CPU && m != profile.Wall {
			return fmt.Errorf("there is no mode %d to sample: profile.CPU and profile.Wall are those; the others are Options.Events", m)
		}
	}
	switch {
	case !(o.Rate >= MinRate && o.Rate <= MaxRate):
		return fmt.Errorf("a rate of %g samples a second: give one between %g and %d", o.Rate, MinRate, MaxRate)
	case !(o.MaxCPU > 0):
		return fmt.Errorf("%g processors to sample with: give a share of one processor, such as %g", o.MaxCPU, DefaultMaxCPU)
	case o.Duration < 0:
		return fmt.Errorf("a recording of %v: give a positive duration, or 0 for no end", o.Duration)
	}
	return nil
}

// readable requires that processes are opened with their runtimes if there are events.
func (o *Options) readable(opts session.Options) error {
	if o.Events.Monitor != 0 && opts.NativeOnly {
		return errors.New("events are those of a .NET runtime: record them without Options.NativeOnly")
	}
	return nil
}

func (o *Options) has(m profile.Mode) bool { return slices.Contains(o.Modes, m) }

func (o *Options) wants(t *session.Thread) bool {
	return o.Threads == nil || o.Threads(bridge.Thread(t).(*clrsnap.Thread))
}

// Record samples the stacks of the threads of a process over time. It returns when
// the duration is over, ctx ends or the process does; what was collected until
// then is the result. An error means that there is no recording.
func Record(ctx context.Context, process *clrsnap.Process, o Options) (*profile.Recording, error) {
	p := bridge.Session(process)
	if p.Walking {
		return nil, bridge.Publish(session.ErrNested(0))
	}
	if err := p.Runs(); err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	var agent *link.Link
	if o.Events.Monitor != 0 {
		if err := o.readable(p.Options); err != nil {
			return nil, err
		}
		if err := bridge.Attachable(o.Events); err != nil {
			return nil, err
		}
		var err error
		if agent, err = link.Attach(ctx, p, bridge.EventRequest(o.Events, p.Options.MaxPause)); err != nil {
			return nil, err
		}
	}
	r := newRecorder(o)
	defer r.close()
	r.opts = p.Options
	err := r.begin(p.PID())
	if err == nil {
		// The kernel takes a number for what it is to sample: it was this process's.
		err = p.Alive()
	}
	if err != nil {
		if agent != nil {
			agent.Detach()
		}
		return nil, bridge.Publish(err)
	}
	rp := r.add(p)
	if agent != nil {
		r.events.met(p.PID(), agent).rp = rp
	}
	return r.run(ctx), nil
}
