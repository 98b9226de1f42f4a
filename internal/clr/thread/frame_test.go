package thread

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

func newChain(t testing.TB, d *contract.Descriptor) *Chain {
	t.Helper()
	c, err := NewChain(d, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const base = arch.Addr(0x7ffd_0000_0000)

// stack is a stack of zeros; the tests write words.
type stack struct{ target.Stack }

func newStack() *stack {
	s := &stack{}
	s.Base, s.Data = base, make([]byte, 8192)
	return s
}

func (s *stack) set(at arch.Addr, v uint64) { binary.LittleEndian.PutUint64(s.Data[at-base:], v) }

func (s *stack) frame(t *testing.T, d *contract.Descriptor, at arch.Addr, kind FrameKind, next arch.Addr) {
	id, ok := d.Global(kind.String() + "Identifier")
	if !ok {
		t.Fatalf("the descriptor does not know %v", kind)
	}
	s.set(at, id)
	s.set(at+8, uint64(next))
}

// saved writes callee-saved registers: r12 has 12, and so on.
func (s *stack) saved(c *Chain, at arch.Addr) {
	for _, r := range c.saved {
		s.set(at+arch.Addr(r.off), uint64(r.reg))
	}
}

func (s *stack) context(at arch.Addr, ip, sp uint64) {
	for r, off := range arch.AMD64.ContextRegs {
		s.set(at+arch.Addr(off), uint64(r))
	}
	s.set(at+arch.Addr(arch.AMD64.ContextRegs[arch.RSP]), sp)
	s.set(at+arch.Addr(arch.AMD64.ContextIP), ip)
}

const (
	frameAt = base + 0x100
	blockAt = base + 0x400
	frameIP = 0x1234
	frameSP = uint64(base + 0x900)
)

// fill gives a Frame the registers that the Frame leads back to: r12 is 12, and so on. fill returns the stack pointer
// among the registers, and false for kinds that only mark a place.
func (s *stack) fill(c *Chain, kind FrameKind) (sp uint64, active bool) {
	l := &c.l
	switch kind {
	case InlinedCallFrame:
		s.set(frameAt+arch.Addr(l.CallSP), frameSP)
		s.set(frameAt+arch.Addr(l.CallIP), frameIP)
		s.set(frameAt+arch.Addr(l.CallFP), uint64(arch.RBP))
	case PInvokeCalliFrame, PrestubMethodFrame, CallCountingHelperFrame, StubDispatchFrame,
		ExternalMethodFrame, DynamicHelperFrame, InterpreterFrame:
		s.set(frameAt+arch.Addr(l.Block), uint64(blockAt))
		s.set(blockAt+arch.Addr(l.BlockIP), frameIP)
		s.saved(c, blockAt+arch.Addr(l.BlockSaved))
		return uint64(blockAt) + uint64(l.BlockSize), true
	case HijackFrame:
		s.set(frameAt+arch.Addr(l.HijackArgs), uint64(blockAt))
		s.set(frameAt+arch.Addr(l.HijackIP), frameIP)
		s.saved(c, blockAt+arch.Addr(l.HijackSaved))
		return uint64(blockAt) + uint64(l.HijackSize), true
	case ResumableFrame, RedirectedThreadFrame:
		s.set(frameAt+arch.Addr(l.ResumeContext), uint64(blockAt))
		s.context(blockAt, frameIP, frameSP)
	case FuncEvalFrame:
		s.set(frameAt+arch.Addr(l.EvalPtr), uint64(blockAt))
		s.context(blockAt+arch.Addr(l.EvalContext), frameIP, frameSP)
	case FaultingExceptionFrame:
		s.context(frameAt+arch.Addr(l.FaultContext), frameIP, frameSP)
	case SoftwareExceptionFrame:
		s.context(frameAt+arch.Addr(l.SoftwareContext), frameIP, frameSP)
	case HelperMethodFrame, HelperMethodFrame1, HelperMethodFrame2, HelperMethodFrame3, HelperMethodFrameProtect:
		s.set(frameAt+arch.Addr(l.HelperCaptured), frameIP)
		s.set(frameAt+arch.Addr(l.HelperStack), frameSP)
		s.saved(c, frameAt+arch.Addr(l.HelperCapture))
	default:
		return 0, false
	}
	return frameSP, true
}

func TestChainContext(t *testing.T) {
	clrtest.OnEach(t, testChainContext)
	for _, name := range []string{clrtest.Net8, clrtest.Net9} {
		t.Run(name, func(t *testing.T) { testChainContext(t, clrtest.Descriptor(t, name)) })
	}
}

func testChainContext(t *testing.T, d *contract.Descriptor) {
	c := newChain(t, d)
	for kind := FrameKind(1); kind < numFrameKinds; kind++ {
		if _, ok := d.Global(kind.String() + "Identifier"); !ok {
			continue
		}
		s := newStack()
		s.frame(t, d, frameAt, kind, base+0x800)
		wantSP, active := s.fill(c, kind)
		var ctx arch.Context
		got, ok, err := c.Context(&s.Stack, frameAt, &ctx)
		if got != kind || ok != active || err != nil {
			t.Errorf("%v: %v, %v, %v", kind, got, ok, err)
			continue
		}
		if next, ok := c.Next(&s.Stack, frameAt); next != base+0x800 || !ok {
			t.Errorf("%v: next is %v, %v", kind, next, ok)
		}
		if !active {
			continue
		}
		sp, ok1 := ctx.Reg(arch.RSP)
		fp, ok2 := ctx.Reg(arch.RBP)
		rbx, ok3 := ctx.Reg(arch.RBX)
		if ctx.IP != frameIP || sp != wantSP || fp != uint64(arch.RBP) || !ok1 || !ok2 ||
			ok3 == (kind == InlinedCallFrame) || ok3 && rbx != uint64(arch.RBX) {
			t.Errorf("%v: %+v", kind, ctx)
		}
		s.Data = s.Data[:0x104] // the Frame is cut off
		if _, ok, err := c.Context(&s.Stack, frameAt, &ctx); ok || err != ErrNotCaptured {
			t.Errorf("%v: a context from memory that is not there: %v", kind, err)
		}
	}
}

// TestHelperMethodFrame: once the runtime has unwound to the caller, the Frame has the resulting registers: their
// values and, for registers saved on the stack, the address of the place, where a garbage collection updates the
// value.
func TestHelperMethodFrame(t *testing.T) {
	d := clrtest.Descriptor(t, clrtest.Net9)
	c := newChain(t, d)
	l := &c.l
	s := newStack()
	s.frame(t, d, frameAt, HelperMethodFrame1, FrameTop)
	s.fill(c, HelperMethodFrame1)
	s.set(frameAt+arch.Addr(l.HelperReturn), uint64(frameAt)+uint64(l.HelperIP))
	s.set(frameAt+arch.Addr(l.HelperIP), 0x7777)
	s.set(frameAt+arch.Addr(l.HelperSP), frameSP+0x40)
	s.saved(c, frameAt+arch.Addr(l.HelperUnwound))
	const moved = base + 0x1000
	s.set(frameAt+arch.Addr(l.HelperPointers)+arch.Addr(l.Rbx), uint64(moved))
	s.set(moved, 0x2222)
	var ctx arch.Context
	kind, ok, err := c.Context(&s.Stack, frameAt, &ctx)
	if kind != HelperMethodFrame1 || !ok || err != nil || !kind.Lazy() {
		t.Fatalf("%v, %v, %v", kind, ok, err)
	}
	sp, _ := ctx.Reg(arch.RSP)
	rbx, _ := ctx.Reg(arch.RBX)
	r12, ok := ctx.Reg(arch.R12)
	if ctx.IP != 0x7777 || sp != frameSP+0x40 || rbx != 0x2222 || r12 != uint64(arch.R12) || !ok {
		t.Errorf("%+v", ctx)
	}
	s.set(frameAt+arch.Addr(l.HelperPointers)+arch.Addr(l.Rbx), 8)
	if _, ok, err := c.Context(&s.Stack, frameAt, &ctx); ok || err != ErrNotCaptured {
		t.Error("a context with a register that lies beside the stack")
	}
}

// An InlinedCallFrame without a return address is on the chain, but not in a call.
func TestInactiveInlinedCallFrame(t *testing.T) { clrtest.OnEach(t, testInactiveInlinedCallFrame) }

func testInactiveInlinedCallFrame(t *testing.T, d *contract.Descriptor) {
	c := newChain(t, d)
	s := newStack()
	s.frame(t, d, base, InlinedCallFrame, FrameTop)
	s.set(base+arch.Addr(c.l.CallSP), uint64(base+0x900))
	var ctx arch.Context
	if kind, ok, err := c.Context(&s.Stack, base, &ctx); kind != InlinedCallFrame || ok || err != nil {
		t.Errorf("%v, %v, %v", kind, ok, err)
	}
}

// TestFrameOfPInvoke: an InlinedCallFrame names a MethodDesc only while the call lasts, and only if the MethodDesc's
// word is not the address of code.
func TestFrameOfPInvoke(t *testing.T) {
	for _, name := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10, clrtest.Net11} {
		t.Run(name, func(t *testing.T) { testFrameOfPInvoke(t, clrtest.Descriptor(t, name)) })
	}
}

func testFrameOfPInvoke(t *testing.T, d *contract.Descriptor) {
	c := newChain(t, d)
	for _, tt := range []struct {
		ip, datum     uint64
		returns, desc arch.Addr
	}{
		{frameIP, 0x7000, frameIP, 0x7000},
		{frameIP, 0x7002, frameIP, 0x7000}, // marked: a helper of the exception machinery
		{frameIP, 0x7006, frameIP, 0x7000},
		{frameIP, 0x7001, 0, 0}, // a call by a function pointer
		{frameIP, 0, frameIP, 0},
		{0, 0x7000, 0, 0}, // not in a call
	} {
		s := newStack()
		s.frame(t, d, frameAt, InlinedCallFrame, FrameTop)
		s.set(frameAt+arch.Addr(c.l.CallIP), tt.ip)
		s.set(frameAt+arch.Addr(c.l.Callee), tt.datum)
		if returns, desc := c.PInvoke(&s.Stack, frameAt); returns != tt.returns || desc != tt.desc {
			t.Errorf("%+v: %v, %v", tt, returns, desc)
		}
		s.frame(t, d, frameAt, PrestubMethodFrame, FrameTop)
		if returns, desc := c.PInvoke(&s.Stack, frameAt); returns != 0 || desc != 0 {
			t.Errorf("another kind of Frame: %v, %v", returns, desc)
		}
	}
}

func TestChainNext(t *testing.T) { clrtest.OnEach(t, testChainNext) }

func testChainNext(t *testing.T, d *contract.Descriptor) {
	c := newChain(t, d)
	for _, tt := range []struct {
		next arch.Addr
		ok   bool
	}{{base + 0x200, true}, {FrameTop, true}, {base + 0x100, false}, {base, false}, {0, false}} {
		s := newStack()
		s.frame(t, d, base+0x100, PrestubMethodFrame, tt.next)
		if next, ok := c.Next(&s.Stack, base+0x100); next != tt.next || ok != tt.ok {
			t.Errorf("%v: %v, %v", tt.next, next, ok)
		}
	}
	if _, ok := c.Next(&newStack().Stack, base-64); ok {
		t.Error("a Frame beside the stack has a next one")
	}
}

// FuzzFrameChain: a stack of random words. The chain must climb, so a walk of the chain ends.
func FuzzFrameChain(f *testing.F) {
	d := clrtest.Descriptor(f, clrtest.Net11) // has all kinds of Frame
	c := newChain(f, d)
	var ids []uint64
	for k := FrameKind(1); k < numFrameKinds; k++ {
		if id, ok := d.Global(k.String() + "Identifier"); ok {
			ids = append(ids, id)
		}
	}
	f.Add([]byte{1, 0x20, 2, 0x40, 9, 0x60}, uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, first uint16) {
		if len(data) > 1024 {
			return
		}
		var s target.Stack
		s.Base = base
		for i := 0; i+1 < len(data); i += 2 {
			v := binary.LittleEndian.Uint16(data[i:])
			w := uint64(base) + uint64(v)
			if v&1 != 0 {
				w = ids[int(v>>1)%len(ids)]
			}
			s.Data = binary.LittleEndian.AppendUint64(s.Data, w)
		}
		at, n := base+arch.Addr(first), 0
		for ok := true; ok && at != FrameTop; n++ {
			var ctx arch.Context
			if _, active, err := c.Context(&s, at, &ctx); active &&
				(err != nil || ctx.IP == 0 || !ctx.Valid.Has(arch.RSP)) {
				t.Fatalf("%v: %+v, %v", at, ctx, err)
			}
			at, ok = c.Next(&s, at)
		}
		if n > len(s.Data)+1 {
			t.Fatalf("%d Frames on %d bytes", n, len(s.Data))
		}
	})
}
