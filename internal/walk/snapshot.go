package walk

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
)

// Mode changes what DoStackSnapshot reports.
type Mode uint8

// The modes of DoStackSnapshot.
const (
	// AsDocumented reports each run of unmanaged frames below the leaf-most
	// one, once, and true return addresses.
	AsDocumented Mode = iota
	// AsCoreCLR reports what CoreCLR itself reports. It finds its way across
	// unmanaged frames by the chain of Frames alone, so that the ip of a method
	// in a P/Invoke is the one that its InlinedCallFrame holds. And it drops a
	// run of unmanaged frames that called into managed code through a method
	// without metadata, such as the stub of a reverse P/Invoke, because its
	// callback looks at the method that was left last
	// (proftoeeinterfaceimpl.cpp, ProfilerStackWalkCallback).
	AsCoreCLR
)

// Run is what DoStackSnapshot reports: a managed frame, or one run of adjacent
// unmanaged frames, by its most recently pushed one.
type Run struct {
	Managed bool
	Frame   *Frame
}

// DoStackSnapshot visits managed frames and runs of unmanaged frames from ctx on.
// The run that the walk begins in, if it does, is not visited: whoever has the
// context has that run too.
func (w *Walker) DoStackSnapshot(t *Thread, ctx *arch.Context, mode Mode, visit func(Run) bool) Result {
	route := ByUnwindInfo
	if mode == AsCoreCLR {
		route = ByFrames
	}
	var failed error
	inRun, hidden := true, false // of the managed frame visited last
	r := w.Walk(t, ctx, route, func(fr *Frame) bool {
		if fr.Kind != Managed {
			if inRun || fr.Kind == Stub {
				return true
			}
			inRun = true
			return hidden && mode == AsCoreCLR || visit(Run{Frame: fr})
		}
		inRun = false
		if hidden, failed = w.Hidden(fr); failed != nil {
			failed = fmt.Errorf("%w at %v: %w", ErrLost, fr.IP(), failed)
			return false
		}
		return hidden || visit(Run{Managed: true, Frame: fr})
	})
	if failed != nil {
		return Result{Err: failed}
	}
	return r
}

// FrameSeed returns the context of the newest managed frame that the thread's
// chain of explicit Frames leads back to, and false where there is none. For a
// thread in preemptive mode that is the frame that called native code.
func (w *Walker) FrameSeed(t *Thread) (arch.Context, bool, error) {
	at := t.Info.Frame
	for n := 0; n < maxChain && at != 0 && at != thread.FrameTop; n++ {
		var c arch.Context
		c.Machine = t.Context.Machine
		if _, ok := w.chain.Context(t.Stack, at, &c); ok {
			if _, managed, err := w.Managed(c.IP); err != nil || managed {
				return c, managed, err
			}
		}
		next, ok := w.chain.Next(t.Stack, at)
		if !ok {
			if !t.Stack.Contains(at) {
				return c, false, fmt.Errorf("%w at %v", ErrMissing, at)
			}
			return c, false, fmt.Errorf("%w: the chain of Frames does not climb at %v", ErrUnsafe, at)
		}
		at = next
	}
	if n := at; n != 0 && n != thread.FrameTop {
		return arch.Context{}, false, fmt.Errorf("%w: more than %d Frames", ErrUnsafe, maxChain)
	}
	return arch.Context{}, false, nil
}

// OnStack reports whether seed is one of the managed frames that t has now. A
// walk from any other context would report frames that do not exist.
func (w *Walker) OnStack(t *Thread, seed *arch.Context) (bool, error) {
	sp, ok := seed.Reg(w.arch.SP)
	if !ok {
		return false, nil
	}
	ctx := t.Context
	found := false
	r := w.Unwind(t, &ctx, ByUnwindInfo, func(fr *Frame) bool {
		found = fr.Kind == Managed && fr.Context.Regs[w.arch.SP] == sp && fr.IP() == seed.IP
		return !found
	})
	if found || r.Complete {
		return found, nil
	}
	return false, r.Err
}
