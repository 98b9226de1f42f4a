package walk

import (
	"bytes"

	"clrsnap/internal/arch"
)

// Until .NET 9, AMD64 funclets set up the frame pointer of their method by
// themselves: they are given the stack pointer of the method's frame, or of another
// funclet's, where the method's own stack pointer is kept (the JIT's PSPSym). Their
// prologs go on with
//
//	mov rbp, [rdi+…]; mov [rsp+…], rbp; lea rbp, [rbp+…]
//
// of which the last may be missing (src/coreclr/jit/codegenxarch.cpp,
// genFuncletProlog). From .NET 10 on they are called with that frame pointer.

// maxFuncletProlog is how much of a funclet's code is looked at: six pushes, sub
// rsp, and the three instructions with long displacements.
const maxFuncletProlog = 64

// framePointerFrom returns how far from the funclet's start its method's frame
// pointer has been set up by it, and false if the funclet does not do that.
func framePointerFrom(code []byte) (int, bool) {
	at := 0
	for {
		if _, n, ok := push(code[at:]); ok {
			at += n
		} else if n := subSP(code[at:]); n > 0 {
			at += n
		} else {
			break
		}
	}
	n := memory(code[at:], 0x8b, arch.RBP, arch.RDI)
	if n == 0 {
		return 0, false
	}
	at += n
	at += memory(code[at:], 0x89, arch.RBP, arch.RSP)
	return at + memory(code[at:], 0x8d, arch.RBP, arch.RBP), true
}

// subSP returns the length of sub rsp with a constant, or 0.
func subSP(code []byte) int {
	switch {
	case len(code) >= 4 && bytes.HasPrefix(code, []byte{0x48, 0x83, 0xec}):
		return 4
	case len(code) >= 7 && bytes.HasPrefix(code, []byte{0x48, 0x81, 0xec}):
		return 7
	}
	return 0
}

// memory returns the length of a 64-bit instruction with a register and [base+…],
// or 0 if code does not begin with it. Both registers are of the lower eight.
func memory(code []byte, opcode, reg, base byte) int {
	if len(code) < 3 || code[0] != 0x48 || code[1] != opcode || code[2]&0x3f != reg<<3|base {
		return 0
	}
	displacement := [4]int{0, 1, 4, -1}[code[2]>>6]
	if displacement < 0 {
		return 0 // not in memory
	}
	n := 3 + displacement
	if base == arch.RSP { // which needs a SIB byte
		n++
	}
	return min(n, len(code))
}

// ownFramePointer reports whether a funclet sets up its method's frame pointer
// itself, and whether it is set up in the state of s.
func (w *Walker) ownFramePointer(s *site, ip arch.Addr) (own, set bool) {
	var code [maxFuncletProlog]byte
	if w.arch.ReturnSlot < 0 || w.mem.ReadMemory(code[:], s.code.Start) != nil {
		return false, false
	}
	from, own := framePointerFrom(code[:])
	if !own || ip < s.code.Start+arch.Addr(from) || s.step == nil {
		return own, false
	}
	for _, r := range s.step.Saved {
		if r.Reg == w.arch.FP {
			return true, true // pushed and not yet popped
		}
	}
	return true, false
}
