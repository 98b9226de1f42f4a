package walk

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

var errNoCode = errors.New("there is no code")

// unwinding is the state of one walk.
type unwinding struct {
	w           *Walker
	t           *Thread
	ctx         *arch.Context
	route       Route
	exact       bool
	leaf        bool      // no managed frame has been passed yet
	fromManaged bool      // the last step was from a managed frame
	runSP       arch.Addr // stack pointer at the begin of the current run of native frames
	signals     int
	gap         error     // why frames may be missing in the middle
	pos         arch.Addr // in the chain of Frames: no earlier Frame belongs to the current run
	broken      error     // why the chain of Frames could not be followed to its end
	called      arch.Addr // in the chain of Frames: no earlier Frame belongs to the frame of the latest Callee
	frame       Frame
}

// Route is the way across native code.
type Route uint8

// The routes. ByUnwindInfo visits every native frame. ByFrames, CoreCLR's own way, visits the
// first native frame of a run and continues at the context of the next explicit Frame.
const (
	ByUnwindInfo Route = iota
	ByFrames
)

// Unwind visits every frame from ctx to the base of the stack, and changes ctx. The ip in ctx is
// the next instruction to be executed, not a return address. The visitor returns false to stop.
func (w *Walker) Unwind(t *Thread, ctx *arch.Context, route Route, visit func(*Frame) bool) Result {
	return w.unwind(t, ctx, route, true, visit)
}

// UnwindFrom is Unwind from the middle of a stack: unless exact, ctx's ip is a return address.
func (w *Walker) UnwindFrom(t *Thread, ctx *arch.Context, exact bool, visit func(*Frame) bool) Result {
	return w.unwind(t, ctx, ByUnwindInfo, exact, visit)
}

func (w *Walker) unwind(t *Thread, ctx *arch.Context, route Route, exact bool, visit func(*Frame) bool) Result {
	u := take(&w.unwinding)
	defer give(&w.unwinding, u)
	*u = unwinding{
		w: w, t: t, ctx: ctx, route: route, exact: exact, leaf: true,
		runSP: arch.Addr(ctx.Regs[w.arch.SP]), pos: t.Info.Frame, gap: t.Gap,
	}
	u.called, u.frame.Context, u.frame.walk = t.Info.Frame, ctx, u
	for n := 0; ; n++ {
		if n == maxFrames {
			return u.lost(fmt.Errorf("more than %d frames", maxFrames))
		}
		s, err := w.lookup(ctx.IP, u.exact)
		if err != nil {
			return u.lost(err)
		}
		if u.fromManaged && (s == nil || s.kind != siteManaged) && u.unhijack(s) {
			continue
		}
		if s == nil {
			if !u.exact {
				// No call returns here: the previous step was wrong.
				if err := u.recover(nil); err != nil {
					return u.lost(err)
				}
				continue
			}
			if !w.modules.Executable(ctx.IP) {
				return u.lost(errNoCode)
			}
			s = &site{kind: siteHelper}
		}
		u.frame.Kind, u.frame.Code, u.frame.Module, u.frame.Exact, u.frame.site = s.frameKind(), &s.code, s.mod,
			u.exact, s
		u.frame.Handler = nil
		if !visit(&u.frame) {
			return Result{Err: ErrStopped, Gap: u.gap}
		}
		base, err := u.step(s)
		if err != nil {
			return u.lost(err)
		}
		if base {
			return Result{Complete: u.gap == nil, Err: u.gap, Gap: u.gap}
		}
	}
}

// lost makes the result of a walk that cannot go on.
func (u *unwinding) lost(err error) Result {
	if errors.Is(err, unwind.ErrStack) {
		err = fmt.Errorf("%w at %v", ErrMissing, u.t.Stack.Miss)
	}
	return Result{Err: fmt.Errorf("%w at %v: %w", ErrLost, u.ctx.IP, err), Gap: u.gap}
}

// step goes from the frame at s to its caller, and reports whether the frame is the base of the
// stack.
func (u *unwinding) step(s *site) (base bool, err error) {
	sp := arch.Addr(u.ctx.Regs[u.w.arch.SP])
	u.fromManaged = false
	noCall := u.exact && s.kind == siteNative
	switch s.kind {
	case siteManaged:
		if err := s.step.Apply(u.ctx, u.t.Stack); err != nil {
			return false, err
		}
		u.exact, u.leaf, u.fromManaged = false, false, true
		u.runSP = arch.Addr(u.ctx.Regs[u.w.arch.SP])
	case siteNative, siteTrip, siteJump:
		if base, err = u.native(s); base || err != nil {
			return base, err
		}
		if s.entry && !u.exact {
			return false, nil // the ret that led here has moved the stack pointer already
		}
	default:
		if !u.exact {
			// Stubs make no calls, so nothing returns into one.
			return false, u.recover(nil)
		}
		pushes := arch.Addr(0)
		if s.kind == siteStub {
			pushes = stubPushes
		}
		if err := u.leafStep(pushes); err != nil {
			return false, err
		}
	}
	return false, u.progress(sp, noCall)
}

// progress requires each step to move up the stack. There are two exceptions. A signal handler
// may be on another stack than the interrupted code. And a function that has made no call may
// have put its return address into a register, like the C library's vfork.
func (u *unwinding) progress(from arch.Addr, noCall bool) error {
	sp := arch.Addr(u.ctx.Regs[u.w.arch.SP])
	if sp%8 != 0 {
		return unwind.ErrProgress
	}
	if sp > from || sp == from && noCall && !u.exact {
		return nil
	}
	if u.exact && u.signals < maxSignals {
		u.signals++
		return nil
	}
	return unwind.ErrProgress
}

func (u *unwinding) native(s *site) (base bool, err error) {
	step := s.step
	switch {
	case u.route == ByFrames:
		if u.follow(nil) {
			return false, nil
		}
		return u.broken == nil, u.broken
	case step == nil:
		if base, done := u.newThread(); done {
			return base, nil
		}
		if u.atBase(s) {
			return true, nil
		}
		return false, u.noInfo(s)
	case step.End:
		return true, nil
	case s.kind == siteTrip || s.kind == siteJump:
		return false, u.special(s)
	}
	if u.tripped() && u.follow(nil) {
		return false, nil
	}
	saved := *u.ctx
	err = step.Apply(u.ctx, u.t.Stack)
	if err == nil && u.ctx.IP == 0 {
		// The return address of a thread's first function is 0. After a wrong step, the return
		// address can be 0 too. If a Frame leads back to managed code, the frame is not the base.
		// If the frame has made no call, or if much of the stack lies above, the frame is hardly
		// the base.
		if u.follow(errNoReturn) {
			return false, nil
		}
		if u.gap == nil && (u.exact || u.t.Stack.Contains(arch.Addr(u.ctx.Regs[u.w.arch.SP])+nearBase)) {
			u.gap = fmt.Errorf("%w at %v, which may not be the base of the stack", errNoReturn, saved.IP)
		}
		return true, nil
	}
	if err != nil && !errors.Is(err, unwind.ErrStack) {
		*u.ctx = saved
		return false, u.recover(err)
	}
	u.exact = step.Signal
	if s.built {
		u.interrupted()
	}
	return false, err
}

// interrupted corrects the step out of the handler of a stack overflow, which runs on its own
// stack. The frame that was built for the handler has the interrupted instruction, but not the
// interrupted stack pointer. The Frame that the runtime makes of the signal's context has both
// (pal/src/exception/signal.cpp, ExecuteHandlerOnCustomStack; vm/eepolicy.cpp,
// HandleFatalStackOverflow).
func (u *unwinding) interrupted() {
	at, ok := u.nextFrame()
	if !ok || at >= arch.Addr(u.ctx.Regs[u.w.arch.SP]) {
		return
	}
	c := arch.Context{Machine: u.ctx.Machine}
	kind, leads, err := u.w.chain.Context(u.t.Stack, at, &c)
	if err != nil || !leads || kind != thread.FaultingExceptionFrame || c.IP != u.ctx.IP {
		return
	}
	*u.ctx = c
	u.runSP = arch.Addr(c.Regs[u.w.arch.SP])
	// The next Frame is on the other stack, at higher or lower addresses.
	u.pos, _ = u.next(at)
}

var errNoReturn = errors.New("the return address is 0")

// nearBase bounds the distance of a thread's first frame from the end of the stack's mapping, in
// bytes: the C library's thread descriptor and thread-local storage follow the first frame.
const nearBase = 64 << 10

// tripped reports whether the current frame is the helper that a hijacked return address leads
// to. Nothing called the helper, so its call frame information cannot lead to a caller. The
// HijackFrame of its callee does lead to the caller (amd64/asmhelpers.S, OnHijackTripThread;
// threads.cpp, OnHijackWorker).
func (u *unwinding) tripped() bool {
	at, ok := u.nextFrame()
	if !ok || at >= arch.Addr(u.ctx.Regs[u.w.arch.SP]) {
		return false
	}
	kind, ok := u.w.chain.Kind(u.t.Stack, at)
	return ok && kind == thread.HijackFrame
}

// nextFrame returns the first Frame of the current run of native frames.
func (u *unwinding) nextFrame() (arch.Addr, bool) {
	if u.t.Info.Address == 0 {
		return 0, false
	}
	for n := 0; n < maxChain && u.pos != 0 && u.pos != thread.FrameTop; n++ {
		if u.pos >= u.runSP {
			return u.pos, true
		}
		next, ok := u.next(u.pos)
		if !ok {
			break
		}
		u.pos = next
	}
	return 0, false
}

// next returns the Frame after the Frame at an address, or notes the reason for a failure.
func (u *unwinding) next(at arch.Addr) (arch.Addr, bool) {
	next, ok := u.w.chain.Next(u.t.Stack, at)
	if !ok {
		u.broken = brokenChain(u.t.Stack, at)
	}
	return next, ok
}

// brokenChain says why the chain of Frames does not lead on from the Frame at an address.
func brokenChain(s *target.Stack, at arch.Addr) error {
	if !s.Contains(at) {
		return fmt.Errorf("%w at %v", ErrMissing, at)
	}
	return fmt.Errorf("%w: the chain of Frames does not climb at %v", ErrUnsafe, at)
}

// noInfo steps from native code without unwind information: a PLT entry, which is a leaf; the end
// of a signal handler; code whose instructions can be followed to its return; or, in a module
// without any unwind information, code with a frame pointer. A call before the return address
// must confirm each step.
func (u *unwinding) noInfo(s *site) error {
	if u.exact && s.mod.InPLT(u.ctx.IP) {
		return u.leafStep(pltPushes)
	}
	bare := s.mod.AheadOfTime() || s.mod.NoUnwindInfo()
	if u.signalReturn() || u.stepByCode(s, !bare) || bare && u.byFramePointer(s) {
		return nil
	}
	return u.recover(fmt.Errorf("%w in %s", unwind.ErrNoInfo, s.mod.Name))
}

// byFramePointer steps by the frame pointer, if the step leads behind a call. The function may
// have made no frame, or not yet: then the frame pointer is its caller's, or belongs to a method
// that a signal has interrupted.
func (u *unwinding) byFramePointer(s *site) bool {
	fp, known := u.ctx.Reg(u.w.arch.FP)
	if !known || arch.Addr(fp) <= arch.Addr(u.ctx.Regs[u.w.arch.SP]) {
		return false
	}
	ip, ok1 := u.t.Stack.Uint64(arch.Addr(fp) + 8)
	up, ok2 := u.t.Stack.Uint64(arch.Addr(fp))
	if !ok1 || !ok2 || !u.w.isReturn(arch.Addr(ip)) {
		return false
	}
	if u.gap == nil {
		u.gap = fmt.Errorf("a frame may be missing below %v: %w in %s", u.ctx.IP, unwind.ErrNoInfo, s.mod.Name)
	}
	u.ctx.Valid &= u.w.arch.NonVolatile
	u.ctx.Set(u.w.arch.FP, up)
	u.ctx.Set(u.w.arch.SP, fp+16)
	u.ctx.IP, u.exact = arch.Addr(ip), false
	return true
}

// How many words a leaf without unwind information may have pushed. The resolve stub of virtual
// dispatch pushes one register (amd64/virtualcallstubcpu.hpp). The thunk of a ReadyToRun image's
// delay-loaded method pushes the number and the address of its import (crossgen2, ImportThunk).
// The first entry of a PLT pushes two words. The helpers that the runtime copies push none.
const (
	stubPushes = 2
	pltPushes  = 2
)

// leafStep steps from a leaf without unwind information. pushes bounds the words that the leaf
// has pushed: the first return address on the stack is the leaf's.
func (u *unwinding) leafStep(pushes arch.Addr) error {
	sp := arch.Addr(u.ctx.Regs[u.w.arch.SP])
	for k := range pushes + 1 {
		v, ok := u.t.Stack.Uint64(sp + 8*k)
		if !ok {
			return unwind.ErrStack
		}
		if u.w.isReturn(arch.Addr(v)) {
			u.ctx.Valid &= u.w.arch.NonVolatile
			u.ctx.Set(u.w.arch.SP, uint64(sp+8*k+8))
			u.ctx.IP, u.exact = arch.Addr(v), false
			return nil
		}
	}
	return fmt.Errorf("no return address on top of the stack at %v", sp)
}

// maxChain bounds the Frames of one recovery.
const maxChain = 1 << 12

// recover continues at the managed frame to which the runtime's own Frames lead back. why is the
// reason for the recovery; nil: the unwind information led to an address without code.
func (u *unwinding) recover(why error) error {
	if why == nil {
		why = fmt.Errorf("no code at %v", u.ctx.IP)
	}
	if u.follow(why) {
		return nil
	}
	if errors.Is(u.broken, ErrMissing) {
		return fmt.Errorf("%w; %w", why, u.broken) // more captured memory helps here
	}
	return why
}

// follow goes to the managed frame to which the first Frame of the current run of native frames
// leads back, if there is such a frame. With a reason why, follow records that frames may be
// missing. On failure, u.broken says why the Frames could not be followed.
func (u *unwinding) follow(why error) bool {
	u.broken = nil
	at, ok := u.nextFrame()
	for n := 0; ok && at != thread.FrameTop && n < maxChain; n++ {
		c := arch.Context{Machine: u.ctx.Machine}
		kind, managed, err := u.w.frameContext(u.t.Stack, at, &c)
		if err != nil {
			u.broken = err
			return false
		}
		sp := arch.Addr(c.Regs[u.w.arch.SP])
		if managed && sp > u.runSP {
			u.note(kind, at, c.IP, why)
			*u.ctx = c
			u.exact = kind == thread.FaultingExceptionFrame || kind == thread.RedirectedThreadFrame ||
				kind == thread.ResumableFrame
			u.runSP = sp
			return true
		}
		at, ok = u.next(at)
	}
	return false
}

// maxLazy bounds the native frames between a runtime function that managed code calls directly
// and its caller. Mostly there is none.
const maxLazy = 32

// frameContext is Chain.Context, all the way to the managed frame. It returns false for three
// kinds of Frames: Frames that only mark a place, are not in a call, or lead to native code that
// has called into the runtime. The caller then goes on with the next Frame. If frameContext
// cannot decide, it returns an error.
func (w *Walker) frameContext(s *target.Stack, at arch.Addr, c *arch.Context) (
	kind thread.FrameKind, managed bool, err error,
) {
	kind, leads, err := w.chain.Context(s, at, c)
	if err != nil || !leads {
		return kind, false, frameError(s, kind, at, err)
	}
	for range maxLazy {
		site, err := w.lookup(c.IP, false)
		switch {
		case err != nil:
			return kind, false, err
		case site != nil && site.kind == siteManaged:
			return kind, true, nil
		case kind.Managed(), site == nil && !w.modules.Executable(c.IP):
			return kind, false, fmt.Errorf("%w: the %v at %v leads to %v, which is not managed code", ErrUnsafe,
				kind, at, c.IP)
		case !kind.Lazy():
			return kind, false, nil
		}
		from := c.Regs[w.arch.SP]
		if site == nil || site.kind != siteNative || site.step == nil || site.step.End {
			return kind, false, lostFrame(kind, at, unwind.ErrNoInfo)
		}
		if err := site.step.Apply(c, s); err != nil {
			return kind, false, frameError(s, kind, at, err)
		}
		if c.Regs[w.arch.SP] <= from {
			return kind, false, lostFrame(kind, at, unwind.ErrProgress)
		}
	}
	return kind, false, lostFrame(kind, at, fmt.Errorf("more than %d native frames", maxLazy))
}

// frameError says why the code to which a Frame leads back is not known.
func frameError(s *target.Stack, kind thread.FrameKind, at arch.Addr, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, thread.ErrNotCaptured), errors.Is(err, unwind.ErrStack):
		return fmt.Errorf("%w at %v, which the %v at %v needs", ErrMissing, s.Miss, kind, at)
	case errors.Is(err, thread.ErrNoReturnAddress):
		return fmt.Errorf("%w: the %v at %v: %w", ErrUnsafe, kind, at, err)
	}
	return lostFrame(kind, at, err)
}

func lostFrame(kind thread.FrameKind, at arch.Addr, why error) error {
	return fmt.Errorf("%w from the %v at %v: %w", ErrLost, kind, at, why)
}

// note records that frames may be missing. A thread in preemptive mode has left managed code
// through its newest Frame, so below that Frame only native frames can be missing. Managed code
// may have called into any other run of native frames without leaving a Frame.
func (u *unwinding) note(kind thread.FrameKind, at, ip arch.Addr, why error) {
	if why == nil || u.gap != nil {
		return
	}
	what := "frames"
	if u.leaf && !u.t.Info.Cooperative {
		what = "native frames"
	}
	u.gap = fmt.Errorf("%s may be missing below %v, where the walk went on from the %v at %v: %w", what, ip,
		kind, at, why)
}
