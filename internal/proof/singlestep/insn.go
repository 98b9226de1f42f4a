package singlestep

// class is an instruction's effect on the stack of calls.
type class uint8

const (
	plain class = iota
	call
	ret
	enter     // a system call
	pushFlags // writes the trap flag to the stack: our trap flag
	popFlags  // popfq
	intReturn // iretq
	trap      // int3: a signal of the program itself
)

// insn has the parts of an instruction for the shadow stack.
type insn struct {
	class  class
	length uint8 // in bytes, of a call (for its return address) and of popfq
	shape  shape
}

// shape is the part of a prolog or epilog, for the report.
type shape uint8

const (
	noShape shape = iota
	pushes
	pops
	makesRoom // changes the stack pointer by a constant
	leaves
	setsFrame // copies the stack pointer to or from the frame pointer
)

var shapeNames = [...]string{"", "push", "pop", "stack pointer ± constant", "leave", "frame pointer set or used"}

// shapeOf knows the forms that the JIT and compilers use.
func shapeOf(code []byte) shape {
	if code[0] == 0x41 {
		code = code[1:]
	}
	switch op := code[0]; {
	case op&0xf8 == 0x50:
		return pushes
	case op&0xf8 == 0x58:
		return pops
	case op == 0xc9:
		return leaves
	case op == 0x48 && (code[1] == 0x83 || code[1] == 0x81) && (code[2] == 0xec || code[2] == 0xc4),
		op == 0x48 && code[1] == 0x8d && (code[2] == 0x64 || code[2] == 0xa4) && code[3] == 0x24:
		return makesRoom
	case op == 0x48 && (code[1] == 0x8b && code[2] == 0xec || code[1] == 0x89 && (code[2] == 0xe5 || code[2] == 0xec) ||
		code[1] == 0x8d && (code[2] == 0x6c || code[2] == 0x65)):
		return setsFrame
	}
	return noShape
}

// classify decodes the instruction at the start of code: prefixes, the opcode
// and the operand of an indirect call (Intel SDM volume 2, chapter 2 and
// appendix A). Every instruction but near calls, returns and the other classes
// is plain, so that the vector extensions need no decoding.
func classify(code []byte) insn {
	in := decode(code)
	if in.class == plain && len(code) >= 5 {
		in.shape = shapeOf(code)
	}
	return in
}

func decode(code []byte) insn {
	n := prefixes(code)
	if n >= len(code) {
		return insn{}
	}
	rest := code[n+1:]
	switch code[n] {
	case 0xe8: // call rel32; the operand size prefix has no effect in 64-bit mode
		return insn{class: call, length: uint8(n + 5)}
	case 0xff:
		if len(rest) > 0 && rest[0]>>3&7 == 2 {
			return insn{class: call, length: uint8(n + 1 + operand(rest))}
		}
	case 0xc3, 0xc2:
		return insn{class: ret}
	case 0x0f:
		if len(rest) > 0 && rest[0] == 0x05 {
			return insn{class: enter}
		}
	case 0x9c:
		return insn{class: pushFlags}
	case 0x9d:
		if n == 0 {
			return insn{class: popFlags, length: 1}
		}
	case 0xcf:
		if n == 1 && code[0] == 0x48 { // REX.W
			return insn{class: intReturn}
		}
	case 0xcc:
		return insn{class: trap}
	}
	return insn{}
}

// prefixes is the number of legacy and REX prefixes.
func prefixes(code []byte) int {
	for n, b := range code {
		switch b {
		case 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65:
			continue
		}
		if b&0xf0 != 0x40 {
			return n
		}
	}
	return len(code)
}

// operand is the length of a ModRM byte and its operand.
func operand(rest []byte) int {
	mod, rm := rest[0]>>6, rest[0]&7
	n := 1
	if mod != 3 && rm == 4 { // SIB
		if n++; mod == 0 && len(rest) > 1 && rest[1]&7 == 5 {
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
