package singlestep

import (
	"clrsnap/internal/arch"

	"golang.org/x/sys/unix"
)

// origin says how a frame came to be on the shadow stack.
type origin uint8

const (
	called      origin = iota
	interrupted        // by a signal; its instruction pointer is exact
	placed             // a return address put on the stack by hand
	base               // there when stepping began
)

// frame is a caller's frame: where execution goes on in the frame, and the
// stack pointer then.
type frame struct {
	ip, sp uint64
	stack  int // number of the stack that sp lies on
	origin origin
	exact  bool
	// hijacked: the ret has jumped elsewhere, and the frame is yet to be reached.
	hijacked bool
	// saved are the registers that a call preserves, with savedKnown.
	saved      [len(preserved)]uint64
	savedKnown bool
}

// preserved are the registers that a call preserves, besides the stack pointer.
var preserved = [...]uint8{arch.RBX, arch.RBP, arch.R12, arch.R13, arch.R14, arch.R15}

func preservedOf(r *unix.PtraceRegs) [len(preserved)]uint64 {
	return [...]uint64{r.Rbx, r.Rbp, r.R12, r.R13, r.R14, r.R15}
}

// slot is the address of the frame's return address.
func (f *frame) slot() uint64 { return f.sp - 8 }

// memory is the shadow stack's view of the thread.
type memory interface {
	word(addr uint64) (uint64, bool) // of the thread's stack
	stackOf(sp uint64) int           // number of the stack that sp lies on
	returns(ip uint64) bool          // a call lies before ip
}

// aside are the frames of a signal handler that has switched to the interrupted
// stack.
type aside struct {
	frames []frame
	below  int // how many frames lie below them
	stack  int
}

// shadow is the true stack of a thread: the frames of all callers, base first.
type shadow struct {
	frames []frame
	asides []aside
	// leaving: the leaf has given up its own frame, but not yet left.
	leaving bool

	count counts
}

// counts are how often each rule was applied.
type counts struct {
	calls, rets, jumps, dropped, hijacks int
	signals, sigreturns, switches, backs int
	leavings, replaced, foretold         int
	// Of the frames already there when stepping began: all, those confirmed by a
	// ret, and those passed by the stack pointer.
	baseFrames, confirmed, baseDropped int
}

// transition is one executed instruction.
type transition struct {
	in            insn
	before, after *unix.PtraceRegs
	delivered     int      // the signal delivered in its place
	code          [16]byte // the instruction and the bytes behind it
}

// update records the effect of an instruction.
func (s *shadow) update(t *transition, m memory) {
	b, a := t.before, t.after
	if t.delivered != 0 && s.handler(t, m) {
		return
	}
	jumped := t.in.class == ret && a.Rip != b.Rip
	stack := m.stackOf(a.Rsp)
	switch {
	case t.in.class == call && a.Rip != b.Rip && a.Rsp == b.Rsp-8:
		s.pop(a, stack, t) // nothing, unless execution has reached a hijacked frame
		s.push(frame{ip: b.Rip + uint64(t.in.length), sp: b.Rsp, stack: stack, saved: preservedOf(b), savedKnown: true})
		s.count.calls++
		s.leaving = false
		return
	case jumped:
		s.returned(b, a)
	case t.in.class == enter && b.Rax == unix.SYS_RT_SIGRETURN && a.Rip != b.Rip+2:
		s.sigreturn(a)
	}
	s.changeStack(b, a, stack, m)
	n := len(s.frames)
	s.pop(a, stack, t)
	s.left(b, a, t, n)
}

func (s *shadow) push(f frame) { s.frames = append(s.frames, f) }

func (s *shadow) top() *frame {
	if len(s.frames) == 0 {
		return nil
	}
	return &s.frames[len(s.frames)-1]
}

// returned judges a ret: the ret confirms its destination frame, or is a jump,
// or goes to the code that the runtime has put in place of the return address.
func (s *shadow) returned(b, a *unix.PtraceRegs) {
	f := s.top()
	switch {
	case f == nil || f.exact || f.slot() != b.Rsp:
		s.count.jumps++
	case f.ip == a.Rip:
		s.count.rets++
		if f.origin == base {
			s.count.confirmed++
		}
	default:
		s.count.hijacks++
		f.hijacked = true
	}
}

// pop drops the frames that the stack pointer has passed.
func (s *shadow) pop(a *unix.PtraceRegs, stack int, t *transition) {
	for f := s.top(); f != nil && f.stack == stack && s.gone(f, a); f = s.top() {
		if t.in.class != ret {
			s.count.dropped++
			if f.origin == base {
				s.count.baseDropped++
			}
		}
		s.frames = s.frames[:len(s.frames)-1]
	}
}

func (s *shadow) gone(f *frame, a *unix.PtraceRegs) bool {
	switch {
	case f.exact:
		return a.Rsp >= f.sp
	case f.hijacked:
		return a.Rsp > f.sp || a.Rsp == f.sp && a.Rip == f.ip
	}
	return a.Rsp >= f.sp
}

// left detects a leaf that drops its own frame and goes on, and notices when the
// leaf has left.
func (s *shadow) left(b, a *unix.PtraceRegs, t *transition, before int) {
	const near = 4096 // within one function
	inside := a.Rip-b.Rip < near || b.Rip-a.Rip < near
	switch {
	case s.leaving:
		s.leaving = inside && t.in.class != ret
	case len(s.frames) < before && t.in.class != ret && t.in.class != enter && inside:
		s.leaving = true
		s.count.leavings++
	}
}

// changeStack follows a switch between the signal stack and the ordinary stack.
func (s *shadow) changeStack(b, a *unix.PtraceRegs, stack int, m memory) {
	f := s.top()
	if f == nil || f.stack == stack {
		return
	}
	for i := len(s.asides) - 1; i >= 0; i-- {
		if x := &s.asides[i]; x.stack == stack && x.below <= len(s.frames) {
			s.frames = append(s.frames[:x.below], x.frames...)
			s.asides = s.asides[:i]
			s.count.backs++
			return
		}
	}
	n := len(s.frames)
	for n > 0 && s.frames[n-1].stack != stack {
		n--
	}
	if n == 0 {
		return // only the leaf is there
	}
	s.count.switches++
	s.asides = append(s.asides, aside{frames: append([]frame(nil), s.frames[n:]...), below: n, stack: f.stack})
	s.frames = s.frames[:n]
	if f = s.top(); f.exact && a.Rsp < f.sp && a.Rip != f.ip {
		if ip, ok := m.word(a.Rsp); ok && m.returns(ip) {
			s.push(frame{ip: ip, sp: a.Rsp + 8, stack: stack, origin: placed})
		}
	}
}

// Layout of the kernel's signal frame (arch/x86/include/asm/sigframe.h, struct
// rt_sigframe; uapi/asm/ucontext.h; uapi/asm/sigcontext.h), in bytes from the
// stack pointer at the handler's first instruction.
const (
	frameContext = 8 // behind the return address
	contextRegs  = 40
	regR8        = 0
	regR12       = 4
	regRbp       = 10
	regRbx       = 11
	regRsp       = 15
	regRip       = 16
)

// handler pushes the frames of a signal handler's start. It reports false where
// the signal had no handler.
func (s *shadow) handler(t *transition, m memory) bool {
	b, a := t.before, t.after
	reg := func(n uint64) uint64 {
		v, _ := m.word(a.Rsp + frameContext + contextRegs + 8*n)
		return v
	}
	// The kernel steps back over a system call to restart the call.
	ip := reg(regRip)
	if a.Rip == b.Rip || reg(regRsp) != b.Rsp || ip != b.Rip && ip != b.Rip-2 {
		return false
	}
	s.push(frame{
		ip: ip, sp: b.Rsp, exact: true, origin: interrupted, stack: m.stackOf(b.Rsp), savedKnown: true,
		saved: [...]uint64{reg(regRbx), reg(regRbp), reg(regR12), reg(regR12 + 1), reg(regR12 + 2), reg(regR12 + 3)},
	})
	back, _ := m.word(a.Rsp)
	s.push(frame{ip: back, sp: a.Rsp + 8, stack: m.stackOf(a.Rsp), savedKnown: false})
	s.count.signals++
	s.leaving = false
	return true
}

// sigreturn takes the newest signal's frames away.
func (s *shadow) sigreturn(a *unix.PtraceRegs) {
	for n := len(s.frames) - 1; n >= 0; n-- {
		if f := &s.frames[n]; f.exact {
			if f.ip == a.Rip && f.sp == a.Rsp {
				s.count.sigreturns++
			}
			s.frames = s.frames[:n]
			return
		}
	}
}
