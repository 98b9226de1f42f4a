// Package insns finds the step up the stack from machine code itself, for code without
// unwind information: it follows the instructions from where a thread is to where the
// function returns, and takes down what happens to the stack pointer and to the
// registers that are saved on the stack. That is how a debugger finds its way through
// musl, which is built without unwind information, and through the native half of the
// runtime in native AOT programs.
//
// It relies on what the System V ABI for AMD64 asks of every function: that it leaves
// the registers rbx, rbp and r12 to r15 as they were, and the stack pointer behind its
// return address. It knows nothing of where a function begins or ends. If a call on the
// way never returns, what follows is another function, and the step is wrong; so a step
// must be confirmed by the code that it leads to.
package insns

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// Bounds on one search.
const (
	maxInsns = 4096
	maxSteps = 4
	window   = 256 // bytes that are read at a time
	longest  = 15  // bytes of an instruction
)

// Steps returns the steps that lead from ip to its caller: mostly one, several where
// ways through the code do not agree, the more likely ones first, none where no way
// leads on. Memory that cannot be read ends a way.
func Steps(mem target.Memory, a *arch.Arch, ip arch.Addr) []*unwind.Step {
	if a.Machine != arch.AMD64.Machine {
		return nil
	}
	s := search{mem: mem, arch: a, seen: map[arch.Addr]bool{}}
	s.ways = []way{{at: ip, base: arch.RSP}}
	for len(s.ways) > 0 && s.insns < maxInsns && len(s.steps) < maxSteps {
		w := s.ways[0]
		s.ways = s.ways[1:]
		s.follow(w)
	}
	return append(s.steps, s.jumps...)
}

// search is one search for steps.
type search struct {
	mem  target.Memory
	arch *arch.Arch

	ways  []way // that are still to be followed
	seen  map[arch.Addr]bool
	insns int

	steps []*unwind.Step // by returns
	jumps []*unwind.Step // by jumps to where the code does not say: calls that replace the return, or switches

	buf   [window]byte
	from  arch.Addr // address of buf[0]
	valid int       // bytes of buf
}

// way is the state at an instruction. The stack pointer is the value that the register
// base has at the start, plus off.
type way struct {
	at     arch.Addr
	base   uint8
	off    int32
	ownFP  bool // rbp has changed: it is no base any more
	loaded [16]place
}

// place is where on the stack a register's last value came from.
type place struct {
	known bool
	base  uint8
	off   int32
}

func (s *search) follow(w way) {
	for ; s.insns < maxInsns; s.insns++ {
		if s.seen[w.at] {
			return
		}
		s.seen[w.at] = true
		in, ok := s.fetch(w.at)
		if !ok {
			return
		}
		next := w.at + arch.Addr(in.length)
		switch {
		case in.vector:
		case in.op == 0xc3, in.op == 0xc2: // ret
			s.steps = s.add(s.steps, &w)
			return
		case in.op == 0xe9, in.op == 0xeb: // jmp
			next = in.target(next)
		case in.op&0xfff0 == 0x70, in.op&0xfff0 == 0x0f80, in.op >= 0xe0 && in.op <= 0xe3: // jumps on a condition
			other := w
			other.at = in.target(next)
			s.ways = append(s.ways, other)
		case in.op == 0xff && in.reg() == 4: // jmp to an address in a register or memory
			s.jumps = s.add(s.jumps, &w)
			return
		case endsWay(&in):
			return
		case !w.apply(&in):
			return
		}
		w.at = next
	}
}

// endsWay reports whether nothing follows an instruction: traps, hlt, far returns.
func endsWay(in *insn) bool {
	switch in.op {
	case 0xcc, 0xf4, 0xca, 0xcb, 0xcf, 0x0f0b:
		return true
	}
	return in.op == 0xff && (in.reg() == 5 || in.reg() == 7)
}

// target is where a jump leads to; next is the instruction after it.
func (in *insn) target(next arch.Addr) arch.Addr {
	if len(in.imm) == 1 {
		return next + arch.Addr(int64(int8(in.imm[0])))
	}
	return next + arch.Addr(int64(int32(binary.LittleEndian.Uint32(in.imm))))
}

// fetch decodes the instruction at an address.
func (s *search) fetch(at arch.Addr) (insn, bool) {
	if at < s.from || at+longest > s.from+arch.Addr(s.valid) {
		s.fill(at)
	}
	if at < s.from || at >= s.from+arch.Addr(s.valid) {
		return insn{}, false
	}
	return decode(s.buf[at-s.from : s.valid])
}

// fill reads the code at an address, less of it at the end of what can be read.
func (s *search) fill(at arch.Addr) {
	s.from, s.valid = at, 0
	const page = 4096
	for _, n := range []int{window, min(window, page-int(at%page))} {
		if s.mem.ReadMemory(s.buf[:n], at) == nil {
			s.valid = n
			return
		}
	}
}

// add makes a step of a way that has come to its end, unless there is the same already.
func (s *search) add(steps []*unwind.Step, w *way) []*unwind.Step {
	st := &unwind.Step{CFAReg: w.base, SP: s.arch.SP, CFAOff: w.off + word, IPOff: -word, Keep: s.arch.NonVolatile}
	if w.base == arch.RSP && w.off < 0 {
		return steps
	}
	for r, p := range w.loaded {
		if !p.known || !s.arch.NonVolatile.Has(uint8(r)) {
			continue
		}
		if p.base == arch.RSP && p.off < 0 {
			continue // pushed on the way, so it is as it was
		}
		if p.base != w.base {
			return steps
		}
		if slices.ContainsFunc(st.Saved, func(o unwind.Saved) bool { return o.Off == p.off-st.CFAOff }) {
			return steps // this way leads through another function
		}
		st.Keep &^= 1 << r
		st.Saved = append(st.Saved, unwind.Saved{Reg: uint8(r), Off: p.off - st.CFAOff})
	}
	if slices.ContainsFunc(steps, func(o *unwind.Step) bool {
		return o.CFAReg == st.CFAReg && o.CFAOff == st.CFAOff && slices.Equal(o.Saved, st.Saved)
	}) {
		return steps
	}
	return append(steps, st)
}
