package thread

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// FrameKind names a kind of explicit Frame (frames.h, FrameTypes.h).
type FrameKind uint8

// The kinds of Frame: first the kinds of .NET 10, in the order of the runtime's own list, then the interpreter's
// Frame, a possible kind in .NET 11, then the kinds that only older runtimes have.
const (
	UnknownFrame FrameKind = iota
	InlinedCallFrame
	ResumableFrame
	RedirectedThreadFrame
	FaultingExceptionFrame
	SoftwareExceptionFrame
	FuncEvalFrame
	PInvokeCalliFrame
	HijackFrame
	PrestubMethodFrame
	CallCountingHelperFrame
	StubDispatchFrame
	ExternalMethodFrame
	DynamicHelperFrame
	ProtectValueClassFrame
	DebuggerClassInitMarkFrame
	DebuggerExitFrame
	DebuggerU2MCatchHandlerFrame
	ExceptionFilterFrame
	InterpreterFrame
	HelperMethodFrame
	HelperMethodFrame1
	HelperMethodFrame2
	HelperMethodFrame3
	HelperMethodFrameProtect
	ProtectByRefsFrame
	DebuggerSecurityCodeMarkFrame
	numFrameKinds
)

var frameNames = [numFrameKinds]string{
	"Frame", "InlinedCallFrame", "ResumableFrame", "RedirectedThreadFrame", "FaultingExceptionFrame",
	"SoftwareExceptionFrame", "FuncEvalFrame", "PInvokeCalliFrame", "HijackFrame", "PrestubMethodFrame",
	"CallCountingHelperFrame", "StubDispatchFrame", "ExternalMethodFrame", "DynamicHelperFrame",
	"ProtectValueClassFrame", "DebuggerClassInitMarkFrame", "DebuggerExitFrame",
	"DebuggerU2MCatchHandlerFrame", "ExceptionFilterFrame", "InterpreterFrame",
	"HelperMethodFrame", "HelperMethodFrame_1OBJ", "HelperMethodFrame_2OBJ", "HelperMethodFrame_3OBJ",
	"HelperMethodFrame_PROTECTOBJ", "ProtectByRefsFrame", "DebuggerSecurityCodeMarkFrame",
}

func (k FrameKind) String() string {
	if k >= numFrameKinds {
		k = UnknownFrame
	}
	return frameNames[k]
}

// way is the way from a Frame back to other code, and so the way to read the Frame.
type way uint8

const (
	wayUnknown    way = iota
	wayMark           // none: the Frame only marks a place
	wayCall           // to the Frame's call, while the Frame is in a call
	wayTransition     // by the transition block of a stub
	wayHijack         // by the arguments of the helper that a hijacked return leads to
	wayPointed        // by a context elsewhere
	wayEval           // by the context of a debugger's evaluation
	wayFault          // by the Frame's own context
	waySoftware       // likewise
	wayHelper         // by the registers of a runtime function
)

func (k FrameKind) way() way {
	switch k {
	case InlinedCallFrame:
		return wayCall
	case PInvokeCalliFrame, PrestubMethodFrame, CallCountingHelperFrame, StubDispatchFrame,
		ExternalMethodFrame, DynamicHelperFrame, InterpreterFrame:
		return wayTransition
	case HijackFrame:
		return wayHijack
	case ResumableFrame, RedirectedThreadFrame:
		return wayPointed
	case FuncEvalFrame:
		return wayEval
	case FaultingExceptionFrame:
		return wayFault
	case SoftwareExceptionFrame:
		return waySoftware
	case HelperMethodFrame, HelperMethodFrame1, HelperMethodFrame2, HelperMethodFrame3, HelperMethodFrameProtect:
		return wayHelper
	case ProtectValueClassFrame, ProtectByRefsFrame, ExceptionFilterFrame,
		DebuggerClassInitMarkFrame, DebuggerSecurityCodeMarkFrame, DebuggerExitFrame, DebuggerU2MCatchHandlerFrame:
		return wayMark
	}
	return wayUnknown
}

// AlwaysReturns reports whether a Frame of the kind leads back to other code as long as the Frame is on the chain.
// Other kinds only mark a place, or lead back only while their call has not returned.
func (k FrameKind) AlwaysReturns() bool { return k.way() > wayCall }

// Lazy reports whether Frames of the kind may lead to native code. The caller then has to unwind from there to the
// nearest managed frame.
func (k FrameKind) Lazy() bool { return k.way() == wayHelper }

// Managed reports whether Frames of the kind lead to managed code only. Native code can also call a stub, and a
// hijacked method can return to native code.
func (k FrameKind) Managed() bool { return k.way() == wayCall || k.way() == wayPointed }

// FrameTop ends the chain (frames.h, FRAME_TOP).
const FrameTop = ^arch.Addr(0)

type frameLayout struct {
	Next uint32 `clr:"Frame.Next"`

	CallSP uint32 `clr:"InlinedCallFrame.CallSiteSP"`
	CallIP uint32 `clr:"InlinedCallFrame.CallerReturnAddress"`
	CallFP uint32 `clr:"InlinedCallFrame.CalleeSavedFP"`
	Callee uint32 `clr:"InlinedCallFrame.Datum,optional"`

	Block      uint32 `clr:"FramedMethodFrame.TransitionBlockPtr"`
	BlockSize  uint32 `clr:"TransitionBlock.!"`
	BlockIP    uint32 `clr:"TransitionBlock.ReturnAddress"`
	BlockSaved uint32 `clr:"TransitionBlock.CalleeSavedRegisters"`

	HijackIP    uint32 `clr:"HijackFrame.ReturnAddress"`
	HijackArgs  uint32 `clr:"HijackFrame.HijackArgsPtr"`
	HijackSize  uint32 `clr:"HijackArgs.!"`
	HijackSaved uint32 `clr:"HijackArgs.CalleeSavedRegisters"`

	ResumeContext   uint32 `clr:"ResumableFrame.TargetContextPtr"`
	FaultContext    uint32 `clr:"FaultingExceptionFrame.TargetContext"`
	SoftwareContext uint32 `clr:"SoftwareExceptionFrame.TargetContext,optional"` // not in .NET 8, where it is never met
	EvalPtr         uint32 `clr:"FuncEvalFrame.DebuggerEvalPtr"`
	EvalContext     uint32 `clr:"DebuggerEval.TargetContext"`

	// Of the runtimes with HelperMethodFrames: parts of their LazyMachState (amd64/gmscpu.h).
	HelperMethod   uint32 `clr:"HelperMethodFrame.Method,optional"`
	HelperIP       uint32 `clr:"HelperMethodFrame.Rip,optional"`
	HelperSP       uint32 `clr:"HelperMethodFrame.Rsp,optional"`
	HelperReturn   uint32 `clr:"HelperMethodFrame.RetAddr,optional"`
	HelperPointers uint32 `clr:"HelperMethodFrame.Ptrs,optional"`
	HelperUnwound  uint32 `clr:"HelperMethodFrame.Unwound,optional"`
	HelperCapture  uint32 `clr:"HelperMethodFrame.Capture,optional"`
	HelperCaptured uint32 `clr:"HelperMethodFrame.CaptureRip,optional"`
	HelperStack    uint32 `clr:"HelperMethodFrame.CaptureRsp,optional"`

	R12 uint32 `clr:"CalleeSavedRegisters.R12"`
	R13 uint32 `clr:"CalleeSavedRegisters.R13"`
	R14 uint32 `clr:"CalleeSavedRegisters.R14"`
	R15 uint32 `clr:"CalleeSavedRegisters.R15"`
	Rbx uint32 `clr:"CalleeSavedRegisters.Rbx"`
	Rbp uint32 `clr:"CalleeSavedRegisters.Rbp"`
}

// Chain reads explicit Frames from the copy of a stack.
type Chain struct {
	l     frameLayout
	a     *arch.Arch
	kinds map[uint64]FrameKind
	saved []savedReg
}

type savedReg struct {
	reg uint8
	off uint32
}

// NewChain binds the Frame chain of the runtime that d describes.
func NewChain(d *contract.Descriptor, a *arch.Arch) (*Chain, error) {
	c := &Chain{a: a, kinds: map[uint64]FrameKind{}}
	if err := d.Bind(&c.l); err != nil {
		return nil, err
	}
	for name, off := range map[string]uint32{
		"R12": c.l.R12, "R13": c.l.R13, "R14": c.l.R14, "R15": c.l.R15, "Rbx": c.l.Rbx, "Rbp": c.l.Rbp,
	} {
		reg, ok := a.CalleeSaved[name]
		if !ok {
			return nil, fmt.Errorf("the descriptor's CalleeSavedRegisters has %s, which %s lacks", name, a.Name)
		}
		c.saved = append(c.saved, savedReg{reg, off})
	}
	// A kind that this runtime lacks never occurs in its chains.
	for k := FrameKind(1); k < numFrameKinds; k++ {
		if id, ok := d.Global(frameNames[k] + "Identifier"); ok && c.described(k) {
			c.kinds[id] = k
		}
	}
	if len(c.kinds) == 0 {
		return nil, errors.New("the runtime's descriptor names no kind of Frame")
	}
	return c, nil
}

// described reports whether the layout of Frames of the kind is known.
func (c *Chain) described(k FrameKind) bool {
	switch k.way() {
	case wayHelper:
		return c.l.HelperReturn != contract.Absent
	case waySoftware:
		return c.l.SoftwareContext != contract.Absent
	}
	return true
}

// Kind returns the kind of the Frame at address at.
func (c *Chain) Kind(s *target.Stack, at arch.Addr) (FrameKind, bool) {
	id, ok := s.Uint64(at)
	if !ok {
		return UnknownFrame, false
	}
	return c.kinds[id], true
}

// Next returns the following Frame, or FrameTop. The chain climbs towards the base of the stack; Next returns false
// at a link that does not climb.
func (c *Chain) Next(s *target.Stack, at arch.Addr) (arch.Addr, bool) {
	v, ok := s.Uint64(at + arch.Addr(c.l.Next))
	next := arch.Addr(v)
	return next, ok && next > at
}

// Reasons why the code that a Frame leads back to is not known.
var (
	// ErrNotCaptured: memory of the Frame was not captured. Stack.Miss names the memory.
	ErrNotCaptured = errors.New("a Frame cannot be read")
	// ErrUnknownFrame: the layout of the kind of Frame is not known.
	ErrUnknownFrame = errors.New("a Frame is of an unknown kind")
	// ErrNoReturnAddress: the kind of Frame leads back to code, but the return address is 0.
	ErrNoReturnAddress = errors.New("a Frame has no return address")
)

// Context sets ctx to the registers of the managed frame that the Frame at address at leads back to. If the kind is
// Lazy, ctx gets the registers of a native frame on the way to the managed frame. Context returns false, and leaves
// ctx unspecified, for Frames that do not lead back to code: Frames that only mark a place, and Frames outside a
// call. With an error, the Frame may or may not lead back, so a walk that skipped the Frame could miss frames.
func (c *Chain) Context(s *target.Stack, at arch.Addr, ctx *arch.Context) (kind FrameKind, leads bool, err error) {
	kind, ok := c.Kind(s, at)
	if !ok {
		return kind, false, ErrNotCaptured
	}
	switch kind.way() {
	case wayMark:
		return kind, false, nil
	case wayCall:
		ok = c.inlinedCall(s, at, ctx)
	case wayTransition:
		ok = c.transition(s, at, ctx)
	case wayHijack:
		ok = c.hijack(s, at, ctx)
	case wayPointed:
		ok = c.pointedContext(s, at+arch.Addr(c.l.ResumeContext), 0, ctx)
	case wayHelper:
		ok = c.helperMethod(s, at, ctx)
	case wayEval:
		ok = c.pointedContext(s, at+arch.Addr(c.l.EvalPtr), c.l.EvalContext, ctx)
	case wayFault:
		ok = c.context(s, at+arch.Addr(c.l.FaultContext), ctx)
	case waySoftware:
		ok = c.context(s, at+arch.Addr(c.l.SoftwareContext), ctx)
		ctx.Valid &= c.a.NonVolatile
	default:
		return kind, false, ErrUnknownFrame
	}
	switch {
	case !ok:
		return kind, false, ErrNotCaptured
	case ctx.IP != 0:
		return kind, true, nil
	case kind.AlwaysReturns():
		return kind, false, ErrNoReturnAddress
	}
	return kind, false, nil
}

// inlinedCall: an InlinedCallFrame is active, with its thread in the call, only while the Frame holds a return
// address (frames.h, FrameHasActiveCall).
func (c *Chain) inlinedCall(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	ip, ok := s.Uint64(at + arch.Addr(c.l.CallIP))
	ctx.IP, ctx.Valid = arch.Addr(ip), 0
	if !ok || ip == 0 {
		return ok
	}
	sp, ok := s.Uint64(at + arch.Addr(c.l.CallSP))
	if !ok {
		return false
	}
	fp, ok := s.Uint64(at + arch.Addr(c.l.CallFP))
	ctx.Set(c.a.SP, sp)
	ctx.Set(c.a.FP, fp)
	return ok
}

// Bits of InlinedCallFrame.Datum (frames.h, InlinedCallFrame::HasFunction and
// InlinedCallFrameMarker).
const (
	datumAddress = 1 // the rest is the address of code, not a MethodDesc
	datumMarks   = 7 // the bits outside a MethodDesc's address
)

// PInvoke returns the P/Invoke of the Frame at address at, with the thread in the call: the return address, and the
// MethodDesc of the callee. The MethodDesc is 0 if the Frame has another kind, is in no call, or does not name a
// MethodDesc.
func (c *Chain) PInvoke(s *target.Stack, at arch.Addr) (returns, desc arch.Addr) {
	if kind, ok := c.Kind(s, at); !ok || kind != InlinedCallFrame || c.l.Callee == contract.Absent {
		return 0, 0
	}
	ip, ok1 := s.Uint64(at + arch.Addr(c.l.CallIP))
	datum, ok2 := s.Uint64(at + arch.Addr(c.l.Callee))
	if !ok1 || !ok2 || ip == 0 || datum&datumAddress != 0 {
		return 0, 0
	}
	return arch.Addr(ip), arch.Addr(datum &^ datumMarks)
}

func (c *Chain) transition(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	block, ok := s.Uint64(at + arch.Addr(c.l.Block))
	if !ok {
		return false
	}
	b := arch.Addr(block)
	ip, ok := s.Uint64(b + arch.Addr(c.l.BlockIP))
	if !ok {
		return false
	}
	ctx.IP, ctx.Valid = arch.Addr(ip), 0
	ctx.Set(c.a.SP, uint64(b)+uint64(c.l.BlockSize))
	return c.calleeSaved(s, b+arch.Addr(c.l.BlockSaved), ctx)
}

func (c *Chain) hijack(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	args, ok := s.Uint64(at + arch.Addr(c.l.HijackArgs))
	if !ok {
		return false
	}
	ip, ok := s.Uint64(at + arch.Addr(c.l.HijackIP))
	if !ok {
		return false
	}
	ctx.IP, ctx.Valid = arch.Addr(ip), 0
	ctx.Set(c.a.SP, args+uint64(c.l.HijackSize))
	return c.calleeSaved(s, arch.Addr(args)+arch.Addr(c.l.HijackSaved), ctx)
}

// helperMethod: a HelperMethodFrame belongs to a runtime function that managed code calls directly, and has the
// registers of the function. Runtime code that needs the caller's registers unwinds from there, and stores the result
// in the Frame.
func (c *Chain) helperMethod(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	l := &c.l
	done, ok := s.Uint64(at + arch.Addr(l.HelperReturn))
	if !ok {
		return false
	}
	ipAt, spAt := l.HelperIP, l.HelperSP
	if done == 0 {
		ipAt, spAt = l.HelperCaptured, l.HelperStack
	}
	ip, ok1 := s.Uint64(at + arch.Addr(ipAt))
	sp, ok2 := s.Uint64(at + arch.Addr(spAt))
	if !ok1 || !ok2 {
		return false
	}
	ctx.IP, ctx.Valid = arch.Addr(ip), 0
	ctx.Set(c.a.SP, sp)
	if done == 0 {
		return c.calleeSaved(s, at+arch.Addr(l.HelperCapture), ctx)
	}
	return c.calleeSaved(s, at+arch.Addr(l.HelperUnwound), ctx) &&
		c.pointedRegisters(s, at+arch.Addr(l.HelperPointers), ctx)
}

// Method returns the MethodDesc of the runtime function of the Frame at an address, if managed code has called the
// function like a method; 0: the Frame has another kind, or the runtime has not looked for the MethodDesc yet.
func (c *Chain) Method(s *target.Stack, at arch.Addr) arch.Addr {
	kind, ok := c.Kind(s, at)
	if !ok || kind.way() != wayHelper || c.l.HelperMethod == contract.Absent {
		return 0
	}
	desc, _ := s.Uint64(at + arch.Addr(c.l.HelperMethod))
	return arch.Addr(desc)
}

// pointedRegisters sets the registers with a known place on the stack. At each register's offset in
// CalleeSavedRegisters, the structure at address at has the address of the place. A garbage collection updates the
// register's value in that place only.
func (c *Chain) pointedRegisters(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	for _, r := range c.saved {
		p, ok := s.Uint64(at + arch.Addr(r.off))
		if !ok {
			return false
		}
		if p == 0 {
			continue
		}
		v, ok := s.Uint64(arch.Addr(p))
		if !ok {
			return false
		}
		ctx.Set(r.reg, v)
	}
	return true
}

func (c *Chain) calleeSaved(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	for _, r := range c.saved {
		v, ok := s.Uint64(at + arch.Addr(r.off))
		if !ok {
			return false
		}
		ctx.Set(r.reg, v)
	}
	return true
}

func (c *Chain) pointedContext(s *target.Stack, at arch.Addr, off uint32, ctx *arch.Context) bool {
	p, ok := s.Uint64(at)
	return ok && c.context(s, arch.Addr(p)+arch.Addr(off), ctx)
}

// context reads a Windows-style CONTEXT.
func (c *Chain) context(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	ctx.Valid = 0
	for r, off := range c.a.ContextRegs {
		v, ok := s.Uint64(at + arch.Addr(off))
		if !ok {
			return false
		}
		ctx.Set(uint8(r), v)
	}
	ip, ok := s.Uint64(at + arch.Addr(c.a.ContextIP))
	ctx.IP = arch.Addr(ip)
	return ok
}
