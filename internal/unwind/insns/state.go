package insns

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

const word = 8

// value is the knowledge about a register or a place on the stack: nothing; the initial
// value of a register plus a number; or the initial word at such an address.
type value struct {
	kind valueKind
	base uint8
	off  int32
}

type valueKind uint8

const (
	unknown valueKind = iota
	sum               // of base's first value and off
	loaded            // the word at the sum
)

// add returns the value plus n.
func (v value) add(n int32) value {
	if v.kind != sum {
		return value{}
	}
	v.off += n
	return v
}

// first is the initial value of a register.
func first(r uint8) value { return value{kind: sum, base: r} }

// state is the knowledge, at an instruction, of the registers that a call preserves,
// and of the places of their initial values. Other registers are unknown. States can
// be compared.
type state struct {
	tracked arch.RegMask
	regs    [registers]value
	saved   [registers]value // a sum: the place on the stack
}

// registers is how many general registers there are.
const registers = 16

func newState(tracked arch.RegMask) state {
	s := state{tracked: tracked}
	for r := range uint8(registers) {
		s.set(r, first(r))
	}
	return s
}

// set gives a register a value. Places below the stack pointer are lost.
func (s *state) set(r uint8, v value) {
	if !s.tracked.Has(r) {
		return
	}
	s.regs[r] = v
	if r != arch.RSP {
		return
	}
	for i := range s.saved {
		if p := &s.saved[i]; p.kind == sum && p.base == v.base && p.off < v.off {
			*p = value{}
		}
	}
}

// push stores a register, or, for noRegister, another value on top of the stack.
func (s *state) push(r uint8) {
	s.set(arch.RSP, s.regs[arch.RSP].add(-word))
	s.store(s.regs[arch.RSP], r)
}

// noRegister stands for a value outside the registers.
const noRegister = registers

// pop loads a register from the top of the stack.
func (s *state) pop(r uint8) {
	v := s.load(s.regs[arch.RSP])
	s.set(arch.RSP, s.regs[arch.RSP].add(word))
	s.set(r, v)
}

// store records that a register's value is stored at a place.
func (s *state) store(at value, r uint8) {
	if at.kind != sum {
		return
	}
	for i := range s.saved {
		if s.saved[i] == at {
			s.saved[i] = value{}
		}
	}
	if r != arch.RSP && s.tracked.Has(r) && s.regs[r] == first(r) && s.saved[r].kind == unknown {
		s.saved[r] = at
	}
}

// load returns the value at a place.
func (s *state) load(at value) value {
	if at.kind != sum {
		return value{}
	}
	for r := range s.saved {
		if s.saved[r] == at {
			return first(uint8(r))
		}
	}
	if at.base == arch.RSP && at.off < 0 {
		return value{} // stored since, and not a register
	}
	at.kind = loaded
	return at
}

// apply records the effect of an instruction that does not jump.
func (s *state) apply(in *insn) {
	sp := s.regs[arch.RSP]
	switch op := in.op; {
	case in.vector:
		s.forget(in)
	case op >= 0x50 && op <= 0x57: // push
		s.push(in.opReg())
	case op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && in.reg() == 6: // push of something else
		s.push(noRegister)
	case op >= 0x58 && op <= 0x5f: // pop
		s.pop(in.opReg())
	case op == 0x8f && in.mod() == 3: // pop, the long form
		s.pop(in.rmReg())
	case op == 0x9d, op == 0x8f: // popf, pop to memory
		s.set(arch.RSP, sp.add(word))
	case op == 0xc9: // leave
		s.set(arch.RSP, s.regs[arch.RBP])
		s.pop(arch.RBP)
	case op == 0xc8: // enter
		s.set(arch.RSP, value{})
		s.set(arch.RBP, value{})
	case (op == 0x81 || op == 0x83) && in.wide() && in.mod() == 3 && in.rmReg() == arch.RSP:
		s.calculate(in)
	case op == 0x89 && in.wide() && in.mod() == 3: // mov register, register
		s.set(in.rmReg(), s.regs[in.regReg()])
	case op == 0x8b && in.wide() && in.mod() == 3:
		s.set(in.regReg(), s.regs[in.rmReg()])
	case op == 0x89 && in.wide(): // mov memory, register
		s.store(s.memory(in), in.regReg())
	case op == 0x8b && in.wide(): // mov register, memory
		s.set(in.regReg(), s.load(s.memory(in)))
	case op == 0x8d && in.wide(): // lea
		s.set(in.regReg(), s.memory(in))
	default:
		s.forget(in)
	}
}

// calculate applies an arithmetic instruction on the stack pointer with a constant.
func (s *state) calculate(in *insn) {
	n := int32(int8(in.imm[0]))
	if len(in.imm) == 4 {
		n = int32(binary.LittleEndian.Uint32(in.imm))
	}
	const add, sub, compare = 0, 5, 7
	switch in.reg() {
	case add:
		s.set(arch.RSP, s.regs[arch.RSP].add(n))
	case sub:
		s.set(arch.RSP, s.regs[arch.RSP].add(-n))
	case compare:
	default:
		s.set(arch.RSP, value{})
	}
}

// forget applies an instruction by marking the registers that it changes as unknown.
func (s *state) forget(in *insn) {
	changed := in.changes()
	for r := range uint8(registers) {
		if changed.Has(r) {
			s.set(r, value{})
		}
	}
}

// memory is the address of a memory operand, if the address is a known register
// plus a number.
func (s *state) memory(in *insn) value {
	m, base := in.modrm[1:], in.rmReg()
	switch {
	case in.mod() == 3, in.mod() == 0 && in.rm() == 5: // no memory; relative to the instruction pointer
		return value{}
	case in.rm() == 4: // SIB
		const noIndex = 4
		if m[0]>>3&7 != noIndex || in.rex&rexX != 0 || in.mod() == 0 && m[0]&7 == 5 {
			return value{}
		}
		m, base = m[1:], m[0]&7|in.rex&rexB<<3
	}
	at := s.regs[base]
	switch len(m) {
	case 1:
		return at.add(int32(int8(m[0])))
	case 4:
		return at.add(int32(binary.LittleEndian.Uint32(m)))
	}
	return at.add(0)
}
