package walk

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// Walk visits the frames that exist from the program's point of view. Catch and finally bodies
// are compiled as functions of their own (funclets) and run on top of all frames that the
// exception is unwinding. Walk therefore skips the frames from a funclet up to the frame of the
// funclet's method, and visits the method once. Filters are frames of their own: when a filter
// runs, nothing has been unwound yet. Frames that an exception has unwound between two handlers
// are skipped too.
//
// Walk visits the frames of the runtime's exception machinery and of methods without metadata;
// Hidden recognises them.
func (w *Walker) Walk(t *Thread, ctx *arch.Context, route Route, visit func(*Frame) bool) Result {
	f := take(&w.folding)
	defer give(&w.folding, f)
	*f = folding{w: w, t: t, visit: visit}
	r := w.Unwind(t, ctx, route, f.frame)
	if f.err != nil {
		return Result{Err: f.err}
	}
	if f.parentOf != nil && r.Err == nil {
		return Result{Err: fmt.Errorf("%w: no frame of the method that the exception handler at %v belongs to",
			ErrUnsafe, f.parentOf.code.Start)}
	}
	return r
}

type folding struct {
	w        *Walker
	t        *Thread
	visit    func(*Frame) bool
	parentOf *site // a funclet; the walk looks for its method's frame
	handler  Place // in that funclet
	called   bool  // the funclet's caller has been seen, or does not matter
	fp       uint64
	fpKnown  bool
	err      error
}

func (f *folding) frame(fr *Frame) bool {
	if f.parentOf != nil && !f.called {
		// The runtime calls this funclet with the frame pointer of its method. The caller's frame
		// shows the frame pointer, whether or not the funclet's prolog has run
		// (amd64/asmhelpers.S, CallEHFunclet).
		f.called = true
		f.fp, f.fpKnown = fr.Context.Reg(f.w.arch.FP)
	}
	if arch.Addr(fr.Context.Regs[f.w.arch.SP]).In(f.t.UnwoundLow, f.t.UnwoundHigh) {
		return true
	}
	if fr.Kind != Managed {
		return f.parentOf != nil || f.visit(fr)
	}
	if f.parentOf != nil {
		if !f.isParent(fr) {
			return true
		}
		f.parentOf = nil
		fr.Handler = &f.handler
		return f.visit(fr)
	}
	if fr.Code.Funclet {
		tr, err := f.w.trait(fr.site, fr.IP())
		if err != nil {
			f.err = fmt.Errorf("%w at %v: %w", ErrLost, fr.IP(), err)
			return false
		}
		if !tr.filter {
			f.parentOf, f.called, f.fpKnown = fr.site, tr.ownFP, false
			f.handler = Place{fr.IP(), fr.Exact}
			if tr.setFP {
				f.fp, f.fpKnown = fr.Context.Reg(f.w.arch.FP)
			}
			return true
		}
	}
	return f.visit(fr)
}

// isParent reports whether fr is a frame of the funclet's method body: of the same method, and
// with the funclet's frame pointer. If the frame pointer is not known, the nearest frame of the
// method is taken.
func (f *folding) isParent(fr *Frame) bool {
	if fr.Code.Funclet || fr.Code.MethodStart != f.parentOf.code.MethodStart {
		return false
	}
	fp, ok := fr.Context.Reg(f.w.arch.FP)
	return !f.fpKnown || !ok || fp == f.fp
}

// Hidden reports whether DoStackSnapshot skips a managed frame: a method without metadata, or of
// the runtime's exception machinery.
func (w *Walker) Hidden(fr *Frame) (bool, error) {
	if fr.Kind != Managed {
		return false, nil
	}
	tr, err := w.trait(fr.site, fr.IP())
	return tr.hidden, err
}

// Filter reports whether a managed frame is an exception filter.
func (w *Walker) Filter(fr *Frame) bool {
	return fr.Kind == Managed && fr.Code.Funclet
}

// Seed returns the first managed context at or above ctx: the context that a profiler with its
// own walk of unmanaged frames would hand to DoStackSnapshot. It returns false for a thread
// without managed frames.
func (w *Walker) Seed(t *Thread) (arch.Context, bool, error) {
	ctx := t.Context
	var seed arch.Context
	found := false
	r := w.Unwind(t, &ctx, ByUnwindInfo, func(fr *Frame) bool {
		if fr.Kind == Managed {
			seed, found = *fr.Context, true
			return false
		}
		return true
	})
	switch {
	case found && r.Gap != nil && t.Info.Cooperative:
		return seed, false, r.Gap // managed frames may be missing above it
	case found || r.Complete:
		return seed, found, nil
	}
	return seed, false, r.Err
}

// Managed returns the managed code at ip, like the profiling API's GetFunctionFromIP, and false
// for anything else.
func (w *Walker) Managed(ip arch.Addr) (codemap.Code, bool, error) {
	s, err := w.lookup(ip, true)
	if err != nil || s == nil || s.kind != siteManaged {
		return codemap.Code{}, false, err
	}
	return s.code, true, nil
}
