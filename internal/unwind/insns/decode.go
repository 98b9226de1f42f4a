package insns

// insn has the parts of an instruction for following the stack pointer.
type insn struct {
	length int
	rex    byte   // 0: none
	op     uint16 // the opcode; for two bytes 0x0f00 and the second byte
	vector bool   // VEX or EVEX: op is from one of several tables
	vvvv   uint8  // the register in a VEX or EVEX prefix
	modrm  []byte // ModRM, SIB and displacement; nil: none
	imm    []byte // immediate operands; for a jump the distance
}

// operands are the bytes behind an opcode (Intel SDM volume 2, appendix A).
type operands uint8

const (
	hasModRM operands = 1 << iota
	imm8
	imm16
	immZ    // 4 bytes, or 2 with the operand size prefix
	immV    // 8 bytes with REX.W, else like immZ
	moffs   // an address
	rel32   // 4 bytes, whatever the prefixes
	invalid // in 64-bit mode
)

const (
	prefixSize = 0x66
	prefixAddr = 0x67
	rexW       = 8
	rexR       = 4
	rexX       = 2
	rexB       = 1
)

// decode reads the instruction at the start of code; false: no instruction, or
// an incomplete instruction.
func decode(code []byte) (in insn, ok bool) {
	n, size16, addr32 := 0, false, false
	for ; n < len(code) && isPrefix(code[n]); n++ {
		size16 = size16 || code[n] == prefixSize
		addr32 = addr32 || code[n] == prefixAddr
	}
	if n < len(code) && code[n]&0xf0 == 0x40 {
		in.rex = code[n]
		n++
	}
	if n >= len(code) {
		return in, false
	}
	var has operands
	switch op := code[n]; {
	case op == 0x0f:
		if n+1 >= len(code) {
			return in, false
		}
		in.op, has = 0x0f00|uint16(code[n+1]), twoBytes(code[n+1])
		n += 2
		if b := byte(in.op); b == 0x38 || b == 0x3a { // a third byte
			n++
		}
	case op == 0xc4 || op == 0xc5 || op == 0x62:
		in.vector = true
		if n, has = in.vectorPrefix(code, n); n == 0 {
			return in, false
		}
	default:
		in.op, has = uint16(op), oneByte(op)
		n++
	}
	return in, has != invalid && in.operands(code, n, has, size16, addr32)
}

func isPrefix(b byte) bool {
	switch b {
	case prefixSize, prefixAddr, 0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65:
		return true
	}
	return false
}

// operands finds the operands, which begin at code[n].
func (in *insn) operands(code []byte, n int, has operands, size16, addr32 bool) bool {
	if has&hasModRM != 0 {
		size := modrmSize(code[min(n, len(code)):])
		if size == 0 || n+size > len(code) {
			return false
		}
		in.modrm = code[n : n+size]
		n += size
		if in.op == 0x8f && !in.vector && in.reg() != 0 {
			return false // AMD's XOP, which CPUs no longer have
		}
		if (in.op == 0xf6 || in.op == 0xf7) && !in.vector && in.reg() > 1 {
			has &^= imm8 | immZ // only test has an immediate
		}
	}
	z := 4
	if size16 && in.rex&rexW == 0 {
		z = 2
	}
	size := 0
	if has&imm8 != 0 {
		size++
	}
	if has&imm16 != 0 {
		size += 2
	}
	switch {
	case has&rel32 != 0:
		size = 4
	case has&immZ != 0:
		size = z
	case has&immV != 0 && in.rex&rexW != 0, has&moffs != 0 && !addr32:
		size = 8
	case has&immV != 0:
		size = z
	case has&moffs != 0:
		size = 4
	}
	if n+size > len(code) {
		return false
	}
	in.imm, in.length = code[n:n+size], n+size
	const most = 15
	return in.length <= most
}

// reg is the register of ModRM or the rest of the opcode, rm the other register of
// ModRM; both without REX's bit.
func (in *insn) reg() byte { return in.modrm[0] >> 3 & 7 }
func (in *insn) rm() byte  { return in.modrm[0] & 7 }
func (in *insn) mod() byte { return in.modrm[0] >> 6 }

// regReg and rmReg are the registers of ModRM, opReg is the register of the opcode.
func (in *insn) regReg() uint8 { return in.reg() | in.rex&rexR<<1 }
func (in *insn) rmReg() uint8  { return in.rm() | in.rex&rexB<<3 }
func (in *insn) opReg() uint8  { return uint8(in.op&7) | in.rex&rexB<<3 }

// wide reports whether the operands have 64 bits.
func (in *insn) wide() bool { return in.rex&rexW != 0 }

// modrmSize is the length of ModRM, SIB and displacement.
func modrmSize(b []byte) int {
	if len(b) < 2 && (len(b) == 0 || b[0]>>6 != 3 && b[0]&7 == 4) {
		return 0
	}
	mod, rm, n := b[0]>>6, b[0]&7, 1
	if mod == 3 {
		return n
	}
	if rm == 4 { // SIB
		n++
		if mod == 0 && b[1]&7 == 5 {
			n += 4
		}
	}
	switch {
	case mod == 1:
		n++
	case mod == 2, mod == 0 && rm == 5:
		n += 4
	}
	return n
}

// oneByte returns the operands of an opcode of one byte.
func oneByte(op byte) operands {
	switch {
	case op < 0x40:
		return [8]operands{hasModRM, hasModRM, hasModRM, hasModRM, imm8, immZ, invalid, invalid}[op&7]
	case op == 0x63, op >= 0x84 && op <= 0x8f, op >= 0xd0 && op <= 0xd3, op >= 0xd8 && op <= 0xdf, op >= 0xfe:
		return hasModRM
	case op == 0x68, op == 0xa9:
		return immZ
	case op == 0x69, op == 0x81, op == 0xc7, op == 0xf7:
		return hasModRM | immZ
	case op == 0x6b, op == 0x80, op == 0x83, op == 0xc0, op == 0xc1, op == 0xc6, op == 0xf6:
		return hasModRM | imm8
	case op == 0x6a, op >= 0x70 && op <= 0x7f, op == 0xa8, op >= 0xb0 && op <= 0xb7,
		op == 0xcd, op >= 0xe0 && op <= 0xe7, op == 0xeb:
		return imm8
	case op >= 0xb8 && op <= 0xbf:
		return immV
	case op >= 0xa0 && op <= 0xa3:
		return moffs
	case op == 0xc2, op == 0xca:
		return imm16
	case op == 0xc8:
		return imm16 | imm8
	case op == 0xe8, op == 0xe9:
		return rel32
	case op == 0x60, op == 0x61, op == 0x82, op == 0x9a, op == 0xce, op >= 0xd4 && op <= 0xd6, op == 0xea:
		return invalid
	}
	return 0
}

// twoBytes returns the operands of an opcode of 0f and another byte, also for
// opcodes with a third byte.
func twoBytes(op byte) operands {
	switch {
	case op == 0x04, op == 0x0a, op == 0x0c, op >= 0x24 && op <= 0x27, op == 0x36, op == 0x39,
		op >= 0x3b && op <= 0x3f, op == 0x7a, op == 0x7b, op == 0xa6, op == 0xa7:
		return invalid
	case op >= 0x05 && op <= 0x09, op == 0x0b, op == 0x0e, op >= 0x30 && op <= 0x37, op == 0x77,
		op >= 0xa0 && op <= 0xa2, op >= 0xa8 && op <= 0xaa, op >= 0xc8 && op <= 0xcf:
		return 0
	case op >= 0x80 && op <= 0x8f:
		return rel32
	case op == 0x0f, op == 0x3a, op >= 0x70 && op <= 0x73, op == 0xa4, op == 0xac, op == 0xba,
		op == 0xc2, op >= 0xc4 && op <= 0xc6:
		return hasModRM | imm8
	}
	return hasModRM
}

// vectorPrefix reads the prefix and the opcode of a VEX or EVEX instruction at code[n],
// and returns the same operands as without the prefix. It returns 0 if code ends early.
// In the prefix REX's bits are inverted.
func (in *insn) vectorPrefix(code []byte, n int) (int, operands) {
	table, size := byte(1), 2
	switch {
	case n+5 >= len(code):
		return 0, 0
	case code[n] == 0xc4:
		table, size = code[n+1]&0x1f, 3
		in.rex = ^code[n+1] >> 5 & (rexR | rexX | rexB)
	case code[n] == 0x62:
		table, size = code[n+1]&7, 4
		in.rex = ^code[n+1] >> 5 & (rexR | rexX | rexB)
	default:
		in.rex = ^code[n+1] >> 5 & rexR
	}
	in.vvvv = ^code[n+min(size-1, 2)] >> 3 & 15
	op := code[n+size]
	in.op = uint16(op)
	n += size + 1
	switch {
	case table == 1 && op == 0x77:
		return n, 0
	case table == 1:
		return n, hasModRM | twoBytes(op)&imm8
	case table == 3:
		return n, hasModRM | imm8
	}
	return n, hasModRM
}
