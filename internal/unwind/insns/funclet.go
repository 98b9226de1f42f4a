package insns

import "clrsnap/internal/arch"

// MethodFramePointer returns the offset in a funclet behind the set-up of its method's
// frame pointer, and false if the funclet does not set the frame pointer up. code begins
// with the start of the funclet.
//
// Until .NET 9, AMD64 funclets set the frame pointer up by themselves: the caller passes
// the stack pointer of the method's frame, or of another funclet's, where the method's
// own stack pointer is kept (the JIT's PSPSym). The prologs go on with
//
//	mov rbp, [rdi+…]; mov [rsp+…], rbp; lea rbp, [rbp+…]
//
// The last instruction may be missing (src/coreclr/jit/codegenxarch.cpp,
// genFuncletProlog). From .NET 10 on the caller passes the frame pointer itself.
func MethodFramePointer(code []byte) (from int, own bool) {
	in, ok := decode(code)
	for ok && (in.isPush() || in.makesRoom()) {
		from += in.length
		in, ok = decode(code[from:])
	}
	if !ok || !in.moves(0x8b, arch.RBP, arch.RDI) {
		return 0, false
	}
	from += in.length
	if in, ok = decode(code[from:]); ok && in.moves(0x89, arch.RBP, arch.RSP) {
		from += in.length
		in, ok = decode(code[from:])
	}
	if ok && in.moves(0x8d, arch.RBP, arch.RBP) {
		from += in.length
	}
	return from, true
}

// MaxFuncletProlog is the number of bytes of a funclet that MethodFramePointer
// looks at: six pushes, sub rsp, and the three instructions with long
// displacements.
const MaxFuncletProlog = 64

// makesRoom reports whether an instruction is sub rsp with a constant.
func (in *insn) makesRoom() bool {
	return !in.vector && (in.op == 0x81 || in.op == 0x83) && in.wide() &&
		in.mod() == 3 && in.reg() == 5 && in.rmReg() == arch.RSP
}

// moves reports whether an instruction has the opcode, 64-bit operands, the register,
// and memory at base and a displacement.
func (in *insn) moves(opcode uint16, reg, base uint8) bool {
	if in.vector || in.op != opcode || !in.wide() || in.mod() == 3 || in.regReg() != reg || in.rmReg() != base {
		return false
	}
	const onlySP = 0x24 // SIB: rsp without an index
	return base != arch.RSP || in.modrm[1] == onlySP && in.rex&rexX == 0
}
