package walk

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
)

// Mode is what DoStackSnapshot reports. It is unrelated to the GC mode of a thread.
type Mode uint8

// The modes of DoStackSnapshot.
const (
	// AsDocumented reports each run of unmanaged frames below the leaf-most
	// one, once, and true return addresses.
	AsDocumented Mode = iota
	// AsCoreCLR reports what CoreCLR itself reports. It crosses unmanaged frames
	// by the chain of Frames alone, so that the ip of a method in a P/Invoke is
	// the one that its InlinedCallFrame holds. And it drops the runs of unmanaged
	// frames next to the managed exception machinery: those that called it, and
	// those through which it called a filter or the handlers of
	// AppDomain.FirstChanceException. TestOracle compares this mode with the runtime
	// itself. CoreCLR probably recognises these runs by the mark that it sets in
	// their InlinedCallFrames (InlinedCallFrameMarker::ExceptionHandlingHelper).
	AsCoreCLR
)

// Run is what DoStackSnapshot reports: a managed frame, or one run of adjacent
// unmanaged frames, by its most recently pushed one.
type Run struct {
	Managed bool
	Frame   *Frame
}

// DoStackSnapshot visits managed frames and runs of unmanaged frames from ctx on.
// If the walk begins in a run of unmanaged frames, that run is not visited: whoever has
// the context has that run too.
func (w *Walker) DoStackSnapshot(t *Thread, ctx *arch.Context, mode Mode, visit func(Run) bool) Result {
	route := ByUnwindInfo
	if mode == AsCoreCLR {
		route = ByFrames
	}
	s := snapshot{w: w, mode: mode, visit: visit, inRun: true}
	r := w.Walk(t, ctx, route, s.frame)
	switch {
	case s.err != nil:
		return Result{Err: s.err}
	case !errors.Is(r.Err, ErrStopped) && !errors.Is(r.Err, ErrLost) && !s.flush(false):
		return Result{Err: ErrStopped, Gap: r.Gap}
	}
	return r
}

// snapshot is the filter between a walk and what DoStackSnapshot reports of it.
type snapshot struct {
	w         *Walker
	mode      Mode
	visit     func(Run) bool
	inRun     bool // its first frame has been seen
	machinery bool // the managed frame seen last is of the exception machinery
	held      bool // a run that is reported unless machinery called it
	run       Frame
	context   arch.Context // of run
	err       error
}

func (s *snapshot) frame(fr *Frame) bool {
	if fr.Kind != Managed {
		return s.unmanaged(fr)
	}
	tr, err := s.w.trait(fr.site, fr.IP())
	if err != nil {
		s.err = fmt.Errorf("%w at %v: %w", ErrLost, fr.IP(), err)
		return false
	}
	if s.inRun = false; tr.hidden && !tr.machinery {
		return true // a stub without metadata: its caller decides whose call the run was
	}
	if !s.flush(tr.machinery) {
		return false
	}
	s.machinery = tr.machinery
	return tr.hidden || s.visit(Run{Managed: true, Frame: fr})
}

func (s *snapshot) unmanaged(fr *Frame) bool {
	switch {
	case s.inRun || fr.Kind == Stub:
		return true
	case s.mode == AsDocumented:
		s.inRun = true
		return s.visit(Run{Frame: fr})
	}
	if !s.flush(false) {
		return false
	}
	s.inRun, s.held = true, !s.machinery
	s.run, s.context = *fr, *fr.Context
	s.run.Context = &s.context
	return true
}

// flush reports the run that is held back, unless it is to be dropped.
func (s *snapshot) flush(drop bool) bool {
	held := s.held
	s.held = false
	return !held || drop || s.visit(Run{Frame: &s.run})
}

// FrameSeed returns the context of the newest managed frame that the thread's
// chain of explicit Frames leads back to, and false where there is none. For a
// thread in preemptive mode that is the frame that called native code. A Frame that
// cannot be read or understood is an error: skipping it could skip a managed frame.
func (w *Walker) FrameSeed(t *Thread) (seed arch.Context, found bool, err error) {
	err = w.eachFrame(t, func(c *arch.Context, managed bool) bool {
		if managed {
			seed, found = *c, true
		}
		return !managed
	})
	return seed, found, err
}

// CheckChain returns nil if the whole chain of a thread's Frames can be followed, else
// the reason. ErrMissing: the memory at Stack.Miss has to be captured too.
func (w *Walker) CheckChain(t *Thread) error {
	return w.eachFrame(t, func(*arch.Context, bool) bool { return true })
}

// eachFrame visits the Frames of a thread, newest first, until the visitor returns
// false: where each leads to, and whether that is managed code.
func (w *Walker) eachFrame(t *Thread, visit func(c *arch.Context, managed bool) bool) error {
	at := t.Info.Frame
	for n := 0; at != 0 && at != thread.FrameTop; n++ {
		if n == maxChain {
			return fmt.Errorf("%w: more than %d Frames", ErrUnsafe, maxChain)
		}
		c := arch.Context{Machine: t.Context.Machine}
		_, managed, err := w.frameContext(t.Stack, at, &c)
		if err != nil || !visit(&c, managed) {
			return err
		}
		next, ok := w.chain.Next(t.Stack, at)
		if !ok {
			return brokenChain(t.Stack, at)
		}
		at = next
	}
	return nil
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
