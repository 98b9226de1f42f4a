package clrsnap

import (
	"errors"
	"fmt"
	"iter"

	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/internal/walk"
)

// DoStackSnapshot walks the stack of a thread and calls callback once for each managed frame and once for each run of
// unmanaged frames, leaf first, before DoStackSnapshot returns.
//
// A thread in preemptive mode needs no seed, and a given seed is ignored. A thread in cooperative mode is walked from
// the seed, which must be a managed frame of the thread at this moment. Without a seed the walk starts at the thread's
// chain of Frames, and returns S_FALSE because managed frames may be missing at the top. Seed finds the seed; Suspend
// holds the moment.
//
// The result is nil (S_OK), or an *Error that errors.Is finds by its HRESULT:
//
//   - E_INVALIDARG: unknown flags, a nil callback, a malformed seed.
//   - CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD: no such live thread.
//   - CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX: the seed is not in managed code.
//   - CORPROF_E_STACKSNAPSHOT_ABORTED: the callback returned an error, and errors.Is finds the callback's error too.
//   - CORPROF_E_STACKSNAPSHOT_UNSAFE: the thread's state contradicts itself, or the seed is not on its stack, or a
//     callback called DoStackSnapshot: try again.
//   - E_FAIL: the walk cannot go on; the text has the address and the reason.
//   - S_FALSE: see above.
//
// Methods without metadata and the runtime's own exception machinery are passed over, as CoreCLR does. A run of
// unmanaged frames at the leaf is not reported either: the caller that made the seed has walked the run.
func (p *Process) DoStackSnapshot(
	thread ThreadID, callback StackSnapshotCallback, infoFlags SnapshotInfo, clientData any, context *Context,
) error {
	if err := p.checkArguments(thread, callback, infoFlags, context); err != nil {
		return err
	}
	if p.s.Walking {
		return publish(session.NestedError(arch.Addr(thread)))
	}
	s, err := p.Suspend(thread)
	if err != nil {
		return err
	}
	defer s.Release()
	return s.DoStackSnapshot(callback, infoFlags, clientData, context)
}

func (p *Process) checkArguments(
	id ThreadID, callback StackSnapshotCallback, flags SnapshotInfo, context *Context,
) error {
	bad := func(format string, args ...any) error {
		return &Error{HRESULT: E_INVALIDARG, Thread: id, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case callback == nil:
		return bad("the callback is nil")
	case flags&^COR_PRF_SNAPSHOT_REGISTER_CONTEXT != 0:
		return bad("infoFlags %#x are not for a 64-bit target", uint32(flags))
	case context == nil:
		return nil
	case context.Machine != Machine(p.s.Arch.Machine):
		return bad("the seed is not a context of %s", p.s.Arch.Name)
	}
	if sp, ok := context.Reg(p.s.Arch.SP); !ok || sp%8 != 0 || context.IP == 0 {
		return bad("the seed lacks an instruction pointer or an aligned stack pointer")
	}
	return nil
}

// DoStackSnapshot is Process.DoStackSnapshot of the suspension's moment.
func (s *Suspension) DoStackSnapshot(
	callback StackSnapshotCallback, infoFlags SnapshotInfo, clientData any, context *Context,
) error {
	p, id := s.p, s.id()
	if err := p.checkArguments(id, callback, infoFlags, context); err != nil {
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	start, incomplete, none, err := s.start(context)
	if err == nil && !none {
		err = s.run(start, func(r walk.Run) error { return s.call(r, callback, infoFlags, clientData) })
	}
	if err == nil && incomplete {
		return s.fails(S_FALSE, "walked without a seed in cooperative mode: managed frames may be missing at the top")
	}
	return s.result(err)
}

func (s *Suspension) usable() error {
	switch {
	case s.p.s.Walking:
		return publish(session.NestedError(s.s.Thread.ID))
	case !s.s.Valid():
		return s.over()
	}
	return nil
}

func (s *Suspension) over() error {
	return s.fails(CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD,
		"the suspension is over: it has been released, or another thread has been captured: call Suspend again")
}

func (s *Suspension) fails(hr HRESULT, text string) error {
	return &Error{HRESULT: hr, Thread: s.id(), Text: text}
}

// start finds where the walk begins.
func (s *Suspension) start(seed *Context) (start arch.Context, incomplete, none bool, err error) {
	if seed == nil || !s.s.Walk.Info.Cooperative {
		// Without a seed the walk starts at the chain of Frames, and an unwind under way is taking that chain down.
		if e := s.s.Exception; e.Unwinding && !e.InHandler {
			return start, false, false, s.fails(CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX,
				"an exception is being unwound, and no handler has been entered yet: try again")
		}
	}
	if !s.s.Walk.Info.Cooperative {
		return s.startPreemptive()
	}
	if seed == nil {
		start, ok, err := s.p.s.Walker.FrameSeed(&s.s.Walk)
		if err != nil {
			return start, false, false, err
		}
		return start, true, !ok, nil
	}
	// A Frame is made before the calls above it. So a Frame below the stack pointer, on the same stack, belongs to a
	// call that has returned.
	const near = 1 << 20
	sp := arch.Addr(s.s.Walk.Context.Regs[s.p.s.Arch.SP])
	if f := s.s.Walk.Info.Frame; f < sp && sp-f < near {
		return start, false, false, s.fails(CORPROF_E_STACKSNAPSHOT_UNSAFE,
			fmt.Sprintf("the newest Frame, at %v, lies below the stack pointer %v", f, sp))
	}
	managed, err := s.p.GetFunctionFromIP(seed.IP)
	if err != nil {
		return start, false, false, err
	}
	if managed == 0 {
		return start, false, false, s.fails(CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX,
			fmt.Sprintf("the seed's instruction pointer %v is not in managed code", arch.Addr(seed.IP)))
	}
	at := seed.inner()
	on, err := s.p.s.Walker.OnStack(&s.s.Walk, at)
	if err != nil {
		return start, false, false, err
	}
	if !on {
		return start, false, false, s.fails(CORPROF_E_STACKSNAPSHOT_UNSAFE,
			"the seed is not one of the frames that the thread has now: it has run since")
	}
	return *at, false, false, nil
}

// startPreemptive begins at the managed frame that called native code. A walk to the frame finds its true return
// address; CoreCLR takes the address from its Frame.
func (s *Suspension) startPreemptive() (start arch.Context, incomplete, none bool, err error) {
	w := s.p.s.Walker
	if s.p.mode == AsDocumented {
		seed, ok, err := w.Seed(&s.s.Walk)
		if err == nil {
			return seed, false, !ok, nil
		}
	}
	start, ok, err := w.FrameSeed(&s.s.Walk)
	return start, false, !ok, err
}

// run walks from start. If visit returns an error, the error is the cause of the result; else the result is the walk's
// error.
func (s *Suspension) run(start arch.Context, visit func(walk.Run) error) error {
	s.p.s.Walking = true
	defer func() { s.p.s.Walking = false }()
	var aborted error
	r := s.p.s.Walker.DoStackSnapshot(&s.s.Walk, &start, walk.Mode(s.p.mode), func(r walk.Run) bool {
		aborted = visit(r)
		return aborted == nil
	})
	if aborted != nil {
		const text = "the callback stopped the walk"
		return &Error{HRESULT: CORPROF_E_STACKSNAPSHOT_ABORTED, Thread: s.id(), Text: text, Err: aborted}
	}
	return r.Err
}

func (s *Suspension) call(r walk.Run, callback StackSnapshotCallback, flags SnapshotInfo, clientData any) error {
	var id FunctionID
	if r.Managed {
		id = FunctionID(r.Frame.Code.MethodDesc)
	}
	var ctx *Context
	if flags&COR_PRF_SNAPSHOT_REGISTER_CONTEXT != 0 {
		ctx = newContext(r.Frame.Context) // the callback may keep or change its own
		ctx.Valid &= uint32(s.p.s.Arch.NonVolatile)
	}
	info := s.p.infos.next(s.p.s, r.Frame.Code)
	err := callback(id, uint64(r.Frame.IP()), info, ctx, clientData)
	info.p = nil
	return err
}

// result turns a walk's error into an HRESULT.
func (s *Suspension) result(err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	hr, text := E_FAIL, "the walk cannot go on"
	if errors.Is(err, walk.ErrUnsafe) || errors.Is(err, walk.ErrMissing) {
		hr, text = CORPROF_E_STACKSNAPSHOT_UNSAFE, "the thread's state is inconsistent right now, try again"
	}
	return &Error{HRESULT: hr, Thread: s.id(), Text: text, Err: err}
}

// Frame has the arguments of a StackSnapshotCallback.
type Frame struct {
	ID      FunctionID // 0: a run of unmanaged frames
	IP      uint64
	Info    *FrameInfo // valid until the next frame
	Context *Context   // nil without COR_PRF_SNAPSHOT_REGISTER_CONTEXT
}

// Frames is DoStackSnapshot as a sequence: its frames, leaf first. A result of DoStackSnapshot other than nil comes
// last, with a zero Frame. The loop may end early. The loop's body must not capture a thread.
func (p *Process) Frames(thread ThreadID, infoFlags SnapshotInfo, seed *Context) iter.Seq2[Frame, error] {
	return frames(func(c StackSnapshotCallback) error { return p.DoStackSnapshot(thread, c, infoFlags, nil, seed) })
}

// Frames is Process.Frames of the suspension's moment.
func (s *Suspension) Frames(infoFlags SnapshotInfo, seed *Context) iter.Seq2[Frame, error] {
	return frames(func(c StackSnapshotCallback) error { return s.DoStackSnapshot(c, infoFlags, nil, seed) })
}

var errLeft = errors.New("the loop has ended")

func frames(walk func(StackSnapshotCallback) error) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		err := walk(func(id FunctionID, ip uint64, info *FrameInfo, ctx *Context, _ any) error {
			if !yield(Frame{id, ip, info, ctx}, nil) {
				return errLeft
			}
			return nil
		})
		if err != nil && !errors.Is(err, errLeft) {
			yield(Frame{}, err)
		}
	}
}

// Seed returns the registers of the thread's leaf-most managed frame: the seed for DoStackSnapshot. nil means that the
// thread has no managed frames.
func (p *Process) Seed(thread ThreadID) (*Context, error) {
	s, err := p.Suspend(thread)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	return s.Seed()
}

// Seed is Process.Seed of the suspension's moment.
func (s *Suspension) Seed() (*Context, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	seed, ok, err := s.p.s.Walker.Seed(&s.s.Walk)
	if err != nil {
		return nil, s.result(err)
	}
	if !ok {
		return nil, nil
	}
	return newContext(&seed), nil
}

// NativeFrame is an unmanaged frame.
type NativeFrame struct {
	IP, SP uint64
	Module string // path, as the target sees it; empty for code outside any module
	Symbol string // demangled; empty where there is none
	Offset uint64 // of IP from the symbol, else from the module
}

// UnmanagedWalk calls yield for the unmanaged frames of a run, leaf first. context is the run's context from a
// callback, or the result of Context. UnmanagedWalk returns the context of the managed frame below the run; nil if the
// run reaches the base of the thread's stack. The suspension must still hold the moment of context. The error is an
// *Error: of CORPROF_E_STACKSNAPSHOT_ABORTED if yield returned an error, else as for DoStackSnapshot.
func (s *Suspension) UnmanagedWalk(context *Context, yield func(NativeFrame) error) (*Context, error) {
	if !s.s.Valid() {
		return nil, s.over()
	}
	if context == nil || yield == nil {
		return nil, &Error{HRESULT: E_INVALIDARG, Thread: s.id(), Text: "UnmanagedWalk needs a context and a function"}
	}
	ctx := *context.inner()
	exact := ctx == s.s.Walk.Context
	var next *Context
	var aborted error
	r := s.p.s.Walker.UnwindFrom(&s.s.Walk, &ctx, exact, func(f *walk.Frame) bool {
		if f.Kind == walk.Managed {
			next = newContext(f.Context)
			return false
		}
		aborted = yield(NativeFrame(s.p.s.NativeFrame(f)))
		return aborted == nil
	})
	switch {
	case aborted != nil:
		const text = "the function stopped the walk"
		return nil, &Error{HRESULT: CORPROF_E_STACKSNAPSHOT_ABORTED, Thread: s.id(), Text: text, Err: aborted}
	case r.Gap != nil:
		return nil, s.result(r.Gap)
	case next != nil || r.Complete:
		return next, nil
	}
	return nil, s.result(r.Err)
}
