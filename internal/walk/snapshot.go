package walk

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
)

// Mode selects the frames that DoStackSnapshot reports. It is unrelated to the GC mode of a
// thread.
type Mode uint8

// The modes of DoStackSnapshot.
const (
	// AsDocumented reports each run of unmanaged frames below the leaf-most run, once, and true
	// return addresses.
	AsDocumented Mode = iota
	// AsCoreCLR reports the frames that CoreCLR itself reports. It crosses unmanaged frames by
	// the chain of Frames alone, so the ip of a method in a P/Invoke is the ip in the method's
	// InlinedCallFrame. And it drops the runs of unmanaged frames next to the managed exception
	// machinery: the runs that called the machinery, and the runs through which the machinery
	// called a filter or the handlers of AppDomain.FirstChanceException. TestOracle compares this
	// mode with the runtime itself. CoreCLR probably recognises these runs by its mark in their
	// InlinedCallFrames (InlinedCallFrameMarker::ExceptionHandlingHelper).
	AsCoreCLR
)

// Run is a managed frame, or a run of adjacent unmanaged frames, represented by its most recently
// pushed frame.
type Run struct {
	Managed bool
	Frame   *Frame
}

// DoStackSnapshot visits managed frames and runs of unmanaged frames from ctx on. If the walk
// begins in a run of unmanaged frames, the run is not visited: the owner of the context has the
// run already.
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

// snapshot is the filter between a walk and DoStackSnapshot's reports.
type snapshot struct {
	w         *Walker
	mode      Mode
	visit     func(Run) bool
	inRun     bool // the run's first frame has been seen
	machinery bool // the latest managed frame belongs to the exception machinery
	held      bool // a run that is reported unless machinery called the run
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

// flush reports the held run, unless drop.
func (s *snapshot) flush(drop bool) bool {
	held := s.held
	s.held = false
	return !held || drop || s.visit(Run{Frame: &s.run})
}

// FrameSeed returns the context of the newest managed frame to which the thread's chain of
// explicit Frames leads back, and false where there is none. For a thread in preemptive mode,
// this is the frame that called native code. A Frame that cannot be read or understood is an
// error: skipping the Frame could skip a managed frame.
func (w *Walker) FrameSeed(t *Thread) (seed arch.Context, found bool, err error) {
	err = w.eachFrame(t, func(c *arch.Context, managed bool) bool {
		if managed {
			seed, found = *c, true
		}
		return !managed
	})
	return seed, found, err
}

// CheckChain returns nil if the whole chain of a thread's Frames can be followed, else the
// reason. ErrMissing: the memory at Stack.Miss must be captured too.
func (w *Walker) CheckChain(t *Thread) error {
	return w.eachFrame(t, func(*arch.Context, bool) bool { return true })
}

// eachFrame visits the Frames of a thread, newest first, until the visitor returns false. The
// visitor gets the context to which a Frame leads, and whether the context is in managed code.
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

// OnStack reports whether seed is a current managed frame of t. A walk from any other context
// would report frames that do not exist.
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
