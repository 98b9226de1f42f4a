package insns

import "clrsnap/internal/arch"

// operand is the set of operands that an instruction writes, if they are general
// registers.
type operand uint8

const (
	operandReg    operand = 1 << iota // the register of ModRM
	operandRM                         // the other operand, if a register and not memory
	operandOp                         // the register of the opcode
	operandVector                     // the register that only VEX and EVEX name
)

// changes returns the general registers that an instruction changes. Not included are the
// stack pointer of an instruction that pushes or pops, and implicit operands that calls
// do not preserve (rax, rcx, rdx and so on). ah, ch, dh and bh are taken for the
// registers with the same numbers.
func (in *insn) changes() (changed arch.RegMask) {
	w := in.written()
	if w&operandReg != 0 {
		changed |= 1 << in.regReg()
	}
	if w&operandRM != 0 && in.mod() == 3 {
		changed |= 1 << in.rmReg()
	}
	if w&operandOp != 0 {
		changed |= 1 << in.opReg()
	}
	if w&operandVector != 0 {
		changed |= 1 << in.vvvv
	}
	return changed
}

// written returns the operands that an instruction writes (Intel SDM volume 2, appendix
// A).
func (in *insn) written() operand {
	switch {
	case in.vector:
		return in.vectorWritten()
	case in.op >= 0x0f00:
		return in.twoByteWritten()
	}
	return in.oneByteWritten()
}

func (in *insn) oneByteWritten() operand {
	switch op := in.op; {
	case op >= 0x38 && op < 0x40: // cmp
	case op < 0x40 && op&7 < 2:
		return operandRM
	case op < 0x40 && op&7 < 4, op == 0x63, op == 0x69, op == 0x6b, op == 0x8a, op == 0x8b, op == 0x8d:
		return operandReg
	case op == 0x80, op == 0x81, op == 0x83:
		if in.reg() != 7 { // cmp
			return operandRM
		}
	case op == 0x86, op == 0x87: // xchg
		return operandReg | operandRM
	case op == 0x88, op == 0x89, op == 0xc0, op == 0xc1, op == 0xc6, op == 0xc7, op >= 0xd0 && op <= 0xd3:
		return operandRM
	case op >= 0x90 && op <= 0x97, op >= 0xb0 && op <= 0xbf: // xchg with rax, mov of a constant
		return operandOp
	case op == 0xf6, op == 0xf7:
		if in.reg() == 2 || in.reg() == 3 { // not, neg
			return operandRM
		}
	case op == 0xfe, op == 0xff:
		if in.reg() < 2 { // inc, dec
			return operandRM
		}
	}
	return 0
}

func (in *insn) twoByteWritten() operand {
	switch op := byte(in.op); {
	case op == 0x02, op == 0x03, op == 0x2c, op == 0x2d, op >= 0x40 && op <= 0x50, op == 0xaf, op >= 0xb6 && op <= 0xb8,
		op >= 0xbc && op <= 0xbf, op == 0xc5, op == 0xd7, op == 0x38, op == 0xb2, op == 0xb4, op == 0xb5:
		return operandReg
	case op < 2, op == 0x7e, op == 0x20, op == 0x21, op >= 0x90 && op <= 0x9f, op == 0xa4, op == 0xa5, op == 0xab,
		op == 0xac, op == 0xad, op == 0xb0, op == 0xb1, op == 0xb3,
		op == 0xba, op == 0xbb, op == 0xc7, op == 0xae, op == 0x3a:
		return operandRM
	case op == 0xc0, op == 0xc1: // xadd
		return operandReg | operandRM
	case op >= 0xc8 && op <= 0xcf: // bswap
		return operandOp
	}
	return 0
}

// vectorWritten ignores the opcode table: of several instructions with the opcode, the
// instruction with a general register counts.
func (in *insn) vectorWritten() operand {
	switch in.op {
	case 0xf0, 0xf2, 0xf5, 0xf6, 0xf7: // rorx, andn, bzhi, pdep, pext, mulx, bextr, shifts
		return operandReg | operandVector
	case 0xf3: // blsr, blsmsk, blsi
		return operandVector
	case 0x2c, 0x2d, 0x50, 0x78, 0x79, 0x93, 0xc5, 0xd7: // conversions, masks, pextrw
		return operandReg
	case 0x14, 0x15, 0x16, 0x17, 0x7e: // moves of elements
		return operandRM
	}
	return 0
}
