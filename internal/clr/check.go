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

// ErrNotStarted: the runtime is loaded, but does not run managed code yet.
var ErrNotStarted = errors.New("it does not run managed code yet")

// ErrUnconfirmed: no thread's managed Thread object refers back. A wrong layout is a reason; so is a garbage
// collector that is moving the managed Thread objects.
var ErrUnconfirmed = errors.New("no thread and its managed Thread object refer to each other")

const (
	maxSamples = 64 // of code, in Check
	maxChecked = 32 // threads whose Frames Check looks at
)

// Outside has facts about a target that do not come from the runtime.
type Outside struct {
	// IsThread reports whether the target has a thread with the id osID.
	IsThread func(osID int) bool
	// Compile makes the step to the caller from the start of a method.
	Compile func(c *codemap.Code, ip arch.Addr) (*unwind.Step, error)
}

// Check compares the runtime's structures with one another and with facts from outside. If the assumed layout is
// wrong, the structures contradict each other. The target may be running, so some structures may be in the middle of
// a change: Check only requires most of them to be consistent, and a check that has failed by chance passes when it
// is repeated.
func (r *Runtime) Check(o Outside) error {
	list, err := r.checkThreads(o.IsThread)
	if err != nil {
		return err
	}
	if err := r.checkFrames(list); err != nil { // at once, while the Frames are still there
		return err
	}
	return r.checkCode(o.Compile)
}

// starting is the greatest number of threads of a runtime whose finalizer does not run yet: the program's first
// thread, and the finalizer.
const starting = 2

// checkThreads: the list of threads ends, and contains the finalizer. The target has every thread that is alive. Some
// threads have managed objects that refer back.
func (r *Runtime) checkThreads(isThread func(int) bool) ([]thread.Thread, error) {
	finalizer, err := r.Threads.Finalizer()
	if err != nil {
		return nil, fmt.Errorf("the finalizer thread cannot be read: %w", err)
	}
	if finalizer == 0 {
		return nil, ErrNotStarted
	}
	list, err := r.Threads.List()
	if err != nil {
		return nil, fmt.Errorf("its list of threads cannot be read: %w", err)
	}
	var found, exposed, confirmed, refuted bool
	var unread error
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
			return nil, fmt.Errorf("its list of threads has the thread id %d, but the process has no such thread",
				t.OSID)
		}
		refers, sound, err := r.Threads.Confirmed(t)
		exposed, confirmed = exposed || refers, confirmed || sound
		if err != nil {
			unread = err
		} else {
			refuted = refuted || refers && !sound
		}
	}
	switch {
	case !found:
		return nil, fmt.Errorf("the finalizer thread is not among the %d threads in its list, or does not run",
			len(list))
	case alive == 1: // some thread must run the program
		return nil, errors.New("its list of threads has only the finalizer thread")
	case exposed && !confirmed && unread != nil && !refuted:
		return nil, fmt.Errorf("%w: %w", ErrUnconfirmed, unread)
	case exposed && !confirmed:
		return nil, ErrUnconfirmed
	}
	return list, nil
}

// checkCode: most of the code in the code map, of the JIT and of ReadyToRun images, belongs to methods with names and
// with a step to the caller that compiles.
func (r *Runtime) checkCode(compile func(*codemap.Code, arch.Addr) (*unwind.Step, error)) error {
	samples, err := r.Code.Samples(maxSamples)
	if err != nil {
		return fmt.Errorf("the code map cannot be read: %w", err)
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

// checkFrames: the kinds of Frame can be told apart. The newest Frame of some threads has a known kind, and if such
// Frames lead back to code, some of them lead to a method's code. On threads that run, the read Frames may be mere
// remains.
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
		case leads && kind == thread.InlinedCallFrame, err != nil && kind.AlwaysReturns():
			wrong++
		} // other Frames mark a place, or lead to native code that has called into the runtime
	}
	switch {
	case unknown > 0 && known == 0:
		return fmt.Errorf("the explicit Frames of %d threads are of unknown kinds", unknown)
	case wrong > 0 && right == 0:
		return fmt.Errorf("the explicit Frames of %d threads do not lead to managed code", wrong)
	}
	return nil
}

func (r *Runtime) isMethod(ip arch.Addr) bool {
	c, err := r.Code.Lookup(ip)
	return err == nil && c.Kind.Managed()
}
