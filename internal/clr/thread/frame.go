package thread

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// FrameKind names a kind of explicit Frame (frames.h, FrameTypes.h).
type FrameKind uint8

// The kinds of Frame of .NET 10, in the order of the runtime's own list, and that of
// the interpreter, which .NET 11 can have, then those that only older runtimes have.
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

// Stays reports whether Frames of a kind lead back to other code as long as they are
// on the chain. The others only mark a place, or not even that when their call has
// returned.
func (k FrameKind) Stays() bool {
	switch k {
	case UnknownFrame, InlinedCallFrame, ProtectValueClassFrame, ProtectByRefsFrame, ExceptionFilterFrame,
		DebuggerClassInitMarkFrame, DebuggerSecurityCodeMarkFrame, DebuggerExitFrame, DebuggerU2MCatchHandlerFrame:
		return false
	}
	return true
}

// FrameTop ends the chain (frames.h, FRAME_TOP).
const FrameTop = ^arch.Addr(0)

type frameLayout struct {
	Next uint32 `clr:"Frame.Next"`

	CallSP uint32 `clr:"InlinedCallFrame.CallSiteSP"`
	CallIP uint32 `clr:"InlinedCallFrame.CallerReturnAddress"`
	CallFP uint32 `clr:"InlinedCallFrame.CalleeSavedFP"`

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

	// Of the runtimes that have HelperMethodFrames: parts of their LazyMachState
	// (amd64/gmscpu.h).
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
	for name, off := range map[string]uint32{"R12": c.l.R12, "R13": c.l.R13, "R14": c.l.R14, "R15": c.l.R15, "Rbx": c.l.Rbx, "Rbp": c.l.Rbp} {
		reg, ok := a.CalleeSaved[name]
		if !ok {
			return nil, fmt.Errorf("the descriptor's CalleeSavedRegisters has %s, which %s lacks", name, a.Name)
		}
		c.saved = append(c.saved, savedReg{reg, off})
	}
	// A kind that this runtime does not have is never met in its chains.
	for k := FrameKind(1); k < numFrameKinds; k++ {
		if id, ok := d.Global(frameNames[k] + "Identifier"); ok {
			c.kinds[id] = k
		}
	}
	if len(c.kinds) == 0 {
		return nil, fmt.Errorf("the runtime's descriptor names no kind of Frame")
	}
	return c, nil
}

// Kind returns the kind of the Frame at address at.
func (c *Chain) Kind(s *target.Stack, at arch.Addr) (FrameKind, bool) {
	id, ok := s.Uint64(at)
	if !ok {
		return UnknownFrame, false
	}
	return c.kinds[id], true
}

// Next returns the Frame that follows, or FrameTop. The chain climbs towards
// the base of the stack; a link that does not is the end of what can be
// believed.
func (c *Chain) Next(s *target.Stack, at arch.Addr) (arch.Addr, bool) {
	v, ok := s.Uint64(at + arch.Addr(c.l.Next))
	next := arch.Addr(v)
	return next, ok && next > at
}

// Context sets ctx to the registers of the managed frame that the Frame at
// address at leads back to; where that frame is Lazy, of a native frame on the way
// there. It returns false, and leaves ctx unspecified, for Frames that lead nowhere:
// those that only mark a place, those that are not active, and those that cannot
// be read.
func (c *Chain) Context(s *target.Stack, at arch.Addr, ctx *arch.Context) (FrameKind, bool) {
	kind, ok := c.Kind(s, at)
	if !ok {
		return kind, false
	}
	switch kind {
	case InlinedCallFrame:
		ok = c.inlinedCall(s, at, ctx)
	case PInvokeCalliFrame, PrestubMethodFrame, CallCountingHelperFrame, StubDispatchFrame, ExternalMethodFrame, DynamicHelperFrame, InterpreterFrame:
		ok = c.transition(s, at, ctx)
	case HijackFrame:
		ok = c.hijack(s, at, ctx)
	case ResumableFrame, RedirectedThreadFrame:
		ok = c.pointedContext(s, at+arch.Addr(c.l.ResumeContext), 0, ctx)
	case HelperMethodFrame, HelperMethodFrame1, HelperMethodFrame2, HelperMethodFrame3, HelperMethodFrameProtect:
		ok = c.helperMethod(s, at, ctx)
	case FuncEvalFrame:
		ok = c.pointedContext(s, at+arch.Addr(c.l.EvalPtr), c.l.EvalContext, ctx)
	case FaultingExceptionFrame:
		ok = c.context(s, at+arch.Addr(c.l.FaultContext), ctx)
	case SoftwareExceptionFrame:
		ok = c.context(s, at+arch.Addr(c.l.SoftwareContext), ctx)
		ctx.Valid &= c.a.NonVolatile
	default:
		return kind, false
	}
	return kind, ok && ctx.IP != 0
}

// inlinedCall: an InlinedCallFrame is active, that is, its thread is in the
// call, only while it holds a return address (frames.h, FrameHasActiveCall).
func (c *Chain) inlinedCall(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	ip, ok := s.Uint64(at + arch.Addr(c.l.CallIP))
	if !ok || ip == 0 {
		return false
	}
	sp, ok := s.Uint64(at + arch.Addr(c.l.CallSP))
	if !ok {
		return false
	}
	fp, ok := s.Uint64(at + arch.Addr(c.l.CallFP))
	ctx.IP, ctx.Valid = arch.Addr(ip), 0
	ctx.Set(c.a.SP, sp)
	ctx.Set(c.a.FP, fp)
	return ok
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

// Lazy reports whether Frames of a kind may lead to native code, from where the
// nearest managed frame has to be looked for.
func (k FrameKind) Lazy() bool { return k >= HelperMethodFrame && k <= HelperMethodFrameProtect }

// helperMethod: a HelperMethodFrame, of a function of the runtime's that managed
// code calls directly, has the registers that this function had. Whoever needs
// those of its caller unwinds from there, and keeps the result.
func (c *Chain) helperMethod(s *target.Stack, at arch.Addr, ctx *arch.Context) bool {
	l := &c.l
	if l.HelperReturn == contract.Absent {
		return false
	}
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
	return c.calleeSaved(s, at+arch.Addr(l.HelperUnwound), ctx) && c.pointedRegisters(s, at+arch.Addr(l.HelperPointers), ctx)
}

// pointedRegisters sets the registers whose place on the stack is known, from a
// structure that has the address of that place where CalleeSavedRegisters has the
// register. A garbage collection changes what is there and nowhere else.
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
