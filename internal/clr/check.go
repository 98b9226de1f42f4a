package clr

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// ErrNotStarted: the runtime is there, but does not run managed code yet.
var ErrNotStarted = errors.New("it does not run managed code yet")

const (
	maxSamples = 64 // of code, in Check
	maxChecked = 32 // threads whose Frames Check looks at
)

// Outside is what is known of a target without its runtime.
type Outside struct {
	// IsThread reports whether the target has a thread of this id.
	IsThread func(osID int) bool
	// Compile makes the step to the caller from the start of a method.
	Compile func(c *codemap.Code, ip arch.Addr) (*unwind.Step, error)
}

// Check holds the runtime's structures against one another and against what is
// outside: where their layout is not what it is taken for, they contradict
// themselves. The target may be running, so that some of what is read is half
// changed: most of it must make sense, and a check that has failed by chance passes
// when it is repeated.
func (r *Runtime) Check(o Outside) error {
	list, err := r.checkThreads(o.IsThread)
	if err != nil {
		return err
	}
	if err := r.checkFrames(list); err != nil { // at once, while they are still there
		return err
	}
	return r.checkCode(o.Compile)
}

// starting is how many threads a runtime has at most whose finalizer does not run
// yet: those of the program's start, and the finalizer.
const starting = 2

// checkThreads: the list of threads ends, the finalizer is in it, every thread that
// is alive is one of the target's, and some have managed objects that refer to them.
func (r *Runtime) checkThreads(isThread func(int) bool) ([]thread.Thread, error) {
	finalizer := r.Threads.Finalizer()
	if finalizer == 0 {
		return nil, ErrNotStarted
	}
	list, err := r.Threads.List()
	if err != nil {
		return nil, fmt.Errorf("its list of threads cannot be read: %w", err)
	}
	var found, exposed, confirmed bool
	alive := 0
	for i := range list {
		t := &list[i]
		if !t.Alive() {
			if t.Address == finalizer && len(list) <= starting {
				return nil, ErrNotStarted
			}
			continue
		}
		alive++
		found = found || t.Address == finalizer
		if !isThread(t.OSID) {
			return nil, fmt.Errorf("its list of threads has number %d, which is no thread of the process", t.OSID)
		}
		refers, sound := r.Threads.Confirmed(t)
		exposed, confirmed = exposed || refers, confirmed || sound
	}
	switch {
	case !found:
		return nil, fmt.Errorf("the finalizer is not among the %d threads in its list, or does not run", len(list))
	case alive == 1: // besides those that run the program
		return nil, errors.New("its list of threads has nothing but the finalizer")
	case exposed && !confirmed:
		return nil, errors.New("none of its threads has the managed object that it refers to")
	}
	return list, nil
}

// checkCode: most of the code that the code map lists leads to methods that have
// names, and from there to their callers; that of the JIT and that of ReadyToRun
// images.
func (r *Runtime) checkCode(compile func(*codemap.Code, arch.Addr) (*unwind.Step, error)) error {
	samples, err := r.Code.Samples(maxSamples)
	if err != nil {
		return fmt.Errorf("its code map cannot be read: %w", err)
	}
	if len(samples) == 0 {
		return ErrNotStarted
	}
	for _, kind := range []codemap.Kind{codemap.JIT, codemap.ReadyToRun} {
		var all, bad int
		var last error
		for _, s := range samples {
			if s.Kind != kind {
				continue
			}
			all++
			if err := r.checkMethod(s.Start, compile); err != nil {
				bad++
				last = err
			}
		}
		if bad > 0 && 2*bad >= all {
			return fmt.Errorf("%d of %d methods (%v) cannot be read: %w", bad, all, kind, last)
		}
	}
	return nil
}

func (r *Runtime) checkMethod(start arch.Addr, compile func(*codemap.Code, arch.Addr) (*unwind.Step, error)) error {
	c, err := r.Code.Lookup(start)
	if err != nil {
		return err
	}
	if !c.Kind.Managed() || c.MethodStart != start || c.Funclet {
		return fmt.Errorf("%w: no method starts at %v", codemap.ErrCorrupt, start)
	}
	if _, err := compile(&c, start); err != nil {
		return err
	}
	m, err := r.Methods.Read(c.MethodDesc)
	if err != nil {
		return err
	}
	_, err = r.Names.Method(&m, true)
	return err
}

// checkFrames: the kinds of Frame are told apart; there are threads whose newest Frame
// is of a known kind, and, if such Frames lead back to managed code, some of them to
// code of a method. Threads that run leave nothing but traces of Frames.
func (r *Runtime) checkFrames(list []thread.Thread) error {
	if err := r.Chain.CheckKinds(r.mem); err != nil {
		return err
	}
	var known, unknown, right, wrong int
	s := &target.Stack{Live: r.mem}
	for i := range list[:min(len(list), maxChecked)] {
		t := &list[i]
		if !t.Alive() || t.Frame == 0 || t.Frame == thread.FrameTop {
			continue
		}
		var ctx arch.Context
		kind, leads, err := r.Chain.Context(s, t.Frame, &ctx)
		if kind == thread.UnknownFrame {
			unknown++
			continue
		}
		known++
		switch {
		case leads && r.isMethod(ctx.IP):
			right++
		case leads && kind == thread.InlinedCallFrame, err != nil && kind.Stays():
			wrong++
		} // others mark a place, or lead to native code that has called into the runtime
	}
	switch {
	case unknown > 0 && known == 0:
		return fmt.Errorf("the explicit Frames of %d threads are of no known kind", unknown)
	case wrong > 0 && right == 0:
		return fmt.Errorf("the explicit Frames of %d threads do not lead to managed code", wrong)
	}
	return nil
}

func (r *Runtime) isMethod(ip arch.Addr) bool {
	c, err := r.Code.Lookup(ip)
	return err == nil && c.Kind.Managed()
}
