package insns

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

const word = 8

// apply takes down what an instruction does to the stack pointer and to saved
// registers; false: the stack pointer is not known any more.
func (w *way) apply(in *insn) bool {
	rm := uint8(0)
	if in.modrm != nil {
		rm = in.rm() | in.rex&rexB<<3
	}
	switch op := in.op; {
	case op >= 0x50 && op <= 0x57, op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && in.reg() == 6: // push
		w.off -= word
	case op >= 0x58 && op <= 0x5f: // pop
		r := uint8(op&7) | in.rex&rexB<<3
		w.load(r, w.base, w.off)
		w.off += word
		return r != arch.RSP
	case op == 0x9d, op == 0x8f: // popf, pop to memory
		w.off += word
	case op == 0xc9: // leave
		if !w.useFP(0) {
			return false
		}
		w.load(arch.RBP, arch.RBP, 0)
		w.off = word
	case (op == 0x81 || op == 0x83) && in.mod() == 3 && rm == arch.RSP:
		return w.calculate(in)
	case op == 0x89 && in.mod() == 3 && in.rex&rexW != 0: // mov rm, reg
		return w.move(rm, in.reg()|in.rex&rexR<<1)
	case op == 0x8b && in.mod() == 3 && in.rex&rexW != 0: // mov reg, rm
		return w.move(in.reg()|in.rex&rexR<<1, rm)
	case op == 0x8b && in.rex&rexW != 0: // mov reg, memory
		return w.loadFrom(in)
	case op == 0x8d && in.reg() == arch.RSP && in.rex&rexR == 0: // lea rsp, memory
		at, ok := w.memory(in)
		w.base, w.off = at.base, at.off
		return ok
	case op == 0x87 && in.mod() == 3 && (rm == arch.RSP || in.reg() == arch.RSP && in.rex&rexR == 0): // xchg
		return false
	}
	return true
}

// calculate applies an arithmetic instruction on the stack pointer with a constant.
func (w *way) calculate(in *insn) bool {
	n := int32(int8(in.imm[0]))
	if len(in.imm) == 4 {
		n = int32(binary.LittleEndian.Uint32(in.imm))
	}
	const add, sub, compare = 0, 5, 7
	switch in.reg() {
	case add:
		w.off += n
	case sub:
		w.off -= n
	case compare:
	default:
		return false
	}
	return true
}

// move applies a copy of one register to another.
func (w *way) move(to, from uint8) bool {
	switch {
	case to == arch.RSP && from == arch.RBP:
		return w.useFP(0)
	case to == arch.RSP:
		return false
	case to == arch.RBP:
		w.ownFP = true
	}
	return true
}

// useFP has the stack pointer continue at rbp plus off.
func (w *way) useFP(off int32) bool {
	if w.ownFP {
		return false
	}
	w.base, w.off = arch.RBP, off
	return true
}

// load notes where a register's value comes from.
func (w *way) load(r, base uint8, off int32) {
	w.loaded[r] = place{true, base, off}
	if r == arch.RBP {
		w.ownFP = true
	}
}

// loadFrom applies a load of a register from memory.
func (w *way) loadFrom(in *insn) bool {
	r := in.reg() | in.rex&rexR<<1
	if r == arch.RSP {
		return false
	}
	if at, ok := w.memory(in); ok {
		w.load(r, at.base, at.off)
	} else if r == arch.RBP {
		w.ownFP = true
	}
	return true
}

// memory is the place on the stack that a memory operand names, if it is [rsp+n] or
// [rbp+n].
func (w *way) memory(in *insn) (place, bool) {
	const noIndex = 0x24 // SIB: rsp alone
	at, m := place{known: true}, in.modrm
	switch {
	case in.mod() == 3 || in.rex&rexB != 0:
		return place{}, false
	case in.rm() == 4 && m[1] == noIndex && in.rex&2 == 0:
		at.base, at.off, m = w.base, w.off, m[2:]
	case in.rm() == arch.RBP && in.mod() != 0 && !w.ownFP:
		at.base, m = arch.RBP, m[1:]
	default:
		return place{}, false
	}
	switch len(m) {
	case 1:
		at.off += int32(int8(m[0]))
	case 4:
		at.off += int32(binary.LittleEndian.Uint32(m))
	}
	return at, true
}
