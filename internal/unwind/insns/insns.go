// Package insns finds the step up the stack from machine code itself, for code without
// unwind information: musl's own code, and the native half of the runtime in native AOT
// programs.
//
// The package works from both sides. Steps follows the instructions from a thread's
// position to the function's return, and records changes of the stack pointer and of the
// registers saved on the stack, as debuggers do. Confirms follows the instructions from
// the function's entry to the thread's position, and compares the result with the step
// found by Steps.
//
// Both rely on the demands of the System V ABI for AMD64 on every function: a function
// restores the registers rbx, rbp and r12 to r15, and leaves the stack pointer behind its
// return address. Neither knows where a function ends: behind a call that never returns
// may follow another function, with instructions that do not belong to the first. A step
// is therefore only certain if both sides agree, and the caller does call the function's
// entry.
package insns

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// Bounds on a search.
const (
	maxInsns  = 4096
	maxStates = 8 // at one instruction
	maxSteps  = 4
	window    = 256 // bytes to read at a time
	longest   = 15  // bytes of an instruction
)

// Steps returns the steps that may lead from ip to its caller, at most maxSteps. Mostly
// there is a single step. There are several where paths through the code do not agree,
// the shortest path first; none if no path reaches a return. Unreadable memory ends a
// path.
func Steps(mem target.Memory, a *arch.Arch, ip arch.Addr) []*unwind.Step {
	var steps []*unwind.Step
	s := newSearch(mem, a)
	s.leave = func(at *state, _ bool) {
		st, ok := at.step(a)
		if ok && len(steps) < maxSteps &&
			!slices.ContainsFunc(steps, func(o *unwind.Step) bool { return same(o, st) }) {
			steps = append(steps, st)
		}
	}
	s.run(ip)
	return steps
}

// same reports whether two steps of this package are alike.
func same(a, b *unwind.Step) bool {
	return a.CFAReg == b.CFAReg && a.CFAOff == b.CFAOff && slices.Equal(a.Saved, b.Saved)
}

// Confirms reports whether a function entered at start can reach ip in a state from which
// step leads to its caller. Unless exact, ip is a return address, and only paths through
// the call before ip count. Other paths may reach ip in another state: behind a call that
// never returns there may be code that calls the function again.
func Confirms(mem target.Memory, a *arch.Arch, start, ip arch.Addr, exact bool, step *unwind.Step) bool {
	confirmed := false
	s := newSearch(mem, a)
	s.arrive = func(to arch.Addr, called bool, at *state) bool {
		confirmed = confirmed || to == ip && (exact || called) && at.confirms(step)
		return confirmed
	}
	s.run(start)
	return confirmed
}

// maxBefore is the number of bytes before ip that ConfirmsAnyEntry looks at.
const maxBefore = 2048

// ConfirmsAnyEntry is Confirms for an unknown function. It reports whether some code before ip begins
// to push registers, and reaches ip with all registers that step restores saved where step finds them.
// A step that restores no register cannot be confirmed by ConfirmsAnyEntry.
func ConfirmsAnyEntry(mem target.Memory, a *arch.Arch, ip arch.Addr, exact bool, step *unwind.Step) bool {
	if len(step.Saved) == 0 {
		return false
	}
	s := newSearch(mem, a)
	for n := arch.Addr(1); n <= maxBefore && n < ip; n++ {
		in, ok := s.fetch(ip - n)
		if ok && in.isPush() && Confirms(mem, a, ip-n, ip, exact, step) {
			return true
		}
	}
	return false
}

// JumpsAway reports whether a function entered at start may jump to an address outside of
// its code, for example in a tail call through a register or memory.
func JumpsAway(mem target.Memory, a *arch.Arch, start arch.Addr) bool {
	away := false
	s := newSearch(mem, a)
	s.leave = func(at *state, jump bool) {
		away = away || jump && *at == newState(a.NonVolatile)
	}
	s.run(start)
	return away
}

// search follows all paths through code.
type search struct {
	mem  target.Memory
	arch *arch.Arch

	// arrive, unless nil, is called at each instruction; called: a call returns there.
	arrive func(to arch.Addr, called bool, at *state) (found bool)
	// leave, unless nil, is called where a path returns, or jumps to an unknown address.
	leave func(at *state, jump bool)

	ways  []way // still to be followed
	seen  map[arch.Addr][]state
	insns int

	buf   [window]byte
	from  arch.Addr // address of buf[0]
	valid int       // bytes of buf
}

// way is where a path continues, and the state there.
type way struct {
	at     arch.Addr
	called bool
	state
}

func newSearch(mem target.Memory, a *arch.Arch) *search {
	return &search{mem: mem, arch: a, seen: map[arch.Addr][]state{}}
}

// run follows all paths from an address, within the bounds.
func (s *search) run(from arch.Addr) {
	if s.arch.Machine != arch.AMD64.Machine {
		return
	}
	s.ways = []way{{at: from, state: newState(s.arch.NonVolatile)}}
	for len(s.ways) > 0 && s.insns < maxInsns {
		w := s.ways[0]
		s.ways = s.ways[1:]
		s.follow(w)
	}
}

// follow follows a path until the path divides or ends, or until another path has been
// there with the same state.
func (s *search) follow(w way) {
	for ; s.insns < maxInsns; s.insns++ {
		if s.arrive != nil && s.arrive(w.at, w.called, &w.state) {
			s.ways = nil
			return
		}
		been := s.seen[w.at]
		if len(been) == maxStates || slices.Contains(been, w.state) {
			return
		}
		s.seen[w.at] = append(been, w.state)
		in, ok := s.fetch(w.at)
		if !ok {
			return
		}
		next := w.at + arch.Addr(in.length)
		w.called = in.isCall()
		switch flow := in.flow(); flow {
		case flowReturn, flowAway:
			if s.leave != nil {
				s.leave(&w.state, flow == flowAway)
			}
			return
		case flowEnd:
			return
		case flowJump:
			w.at = in.target(next)
		case flowEither:
			other := w
			w.at, other.at = next, in.target(next)
			s.ways = append(s.ways, w, other)
			return
		default:
			w.apply(&in)
			w.at = next
		}
	}
}

// flow is where control goes after an instruction.
type flow uint8

const (
	flowOn     flow = iota // to the next instruction
	flowReturn             // to the caller
	flowJump
	flowEither // on, or jumps
	flowAway   // jumps to an address in a register or memory: a tail call, or a switch
	flowEnd    // nowhere: traps, hlt, far returns
)

func (in *insn) flow() flow {
	if in.vector {
		return flowOn
	}
	switch op := in.op; {
	case op == 0xc3, op == 0xc2:
		return flowReturn
	case op == 0xe9, op == 0xeb:
		return flowJump
	case op&0xfff0 == 0x70, op&0xfff0 == 0x0f80, op >= 0xe0 && op <= 0xe3:
		return flowEither
	case op == 0xff && in.reg() == 4:
		return flowAway
	case op == 0xcc, op == 0xf4, op == 0xca, op == 0xcb, op == 0xcf, op == 0x0f0b,
		op == 0xff && (in.reg() == 5 || in.reg() == 7):
		return flowEnd
	}
	return flowOn
}

// isPush reports whether an instruction pushes a register.
func (in *insn) isPush() bool { return !in.vector && in.op >= 0x50 && in.op <= 0x57 }

// isCall reports whether an instruction calls; code goes on behind the call.
func (in *insn) isCall() bool {
	return !in.vector && (in.op == 0xe8 || in.op == 0xff && in.reg() == 2)
}

// target is the destination of a jump or call; next is the next instruction.
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

// fill reads the code at an address, and less code at the end of readable memory.
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

// step makes a step of a function's state at a return; false: the state is not possible at a return.
func (s *state) step(a *arch.Arch) (*unwind.Step, bool) {
	sp := s.regs[arch.RSP]
	if sp.kind != sum || sp.base == arch.RSP && sp.off < 0 {
		return nil, false
	}
	st := &unwind.Step{CFAReg: sp.base, SP: a.SP, CFAOff: sp.off + word, IPOff: -word, Keep: a.NonVolatile}
	for r := range uint8(registers) {
		v := s.regs[r]
		if r == arch.RSP || !a.NonVolatile.Has(r) || v == first(r) {
			continue
		}
		off := v.off - st.CFAOff
		twice := slices.ContainsFunc(st.Saved, func(o unwind.Saved) bool { return o.Off == off })
		if v.kind != loaded || v.base != sp.base || off > -2*word || twice {
			return nil, false // this path leads through another function
		}
		st.Keep &^= 1 << r
		st.Saved = append(st.Saved, unwind.Saved{Reg: r, Off: off})
	}
	return st, true
}

// confirms reports whether a step leads from here to the caller of the state's function.
func (s *state) confirms(st *unwind.Step) bool {
	if s.regs[st.CFAReg] != (value{kind: sum, base: arch.RSP, off: word - st.CFAOff}) {
		return false
	}
	for _, v := range st.Saved {
		if s.saved[v.Reg] != (value{kind: sum, base: arch.RSP, off: word + v.Off}) {
			return false
		}
	}
	for r := range uint8(registers) {
		if r != arch.RSP && st.Keep.Has(r) && s.regs[r] != first(r) {
			return false
		}
	}
	return true
}
