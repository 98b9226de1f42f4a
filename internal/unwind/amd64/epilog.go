package amd64

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// How much code around an address is looked at. The longest epilog of the JIT
// is an rsp adjustment (7 bytes), eight pops (14), a load of a jump target (10)
// and a jump (7); behind the address an adjustment or a pop and a load may
// matter.
const (
	codeBehind = 24
	codeAhead  = 56
)

// code is the piece of a function around ip.
type code struct {
	start arch.Addr // of the function
	ip    arch.Addr
	pos   int // index of ip in b
	b     []byte
	buf   [codeBehind + codeAhead]byte
}

func (c *code) read(mem target.Memory, end arch.Addr) error {
	behind := min(uint64(c.ip-c.start), codeBehind)
	ahead := min(uint64(end-c.ip), codeAhead)
	c.pos = int(behind)
	c.b = c.buf[:behind+ahead]
	return mem.ReadMemory(c.b, c.ip-arch.Addr(behind))
}

// epilog recognises the rest of an epilog in the instructions at an address:
// there is no unwind information for epilogs. The form follows the Windows x64
// convention, as do genFnEpilog and genFuncletEpilog in
// src/coreclr/jit/codegenxarch.cpp: rsp is adjusted, registers are popped,
// control leaves by ret or by a jump.
type epilog struct {
	*code
	f          *Function
	sameMethod func(arch.Addr) bool
	ops        []op
}

// recognise simulates the epilog from ip on. It returns false if ip is not in
// an epilog.
func (e *epilog) recognise() (frame, bool) {
	fr := frame{base: arch.RSP}
	i := e.pos
	for {
		if reg, n := popAt(e.b[i:]); n > 0 {
			if reg == arch.RSP {
				return fr, false
			}
			fr.save(reg, fr.sp)
			fr.sp += 8
			i += n
		} else if imm, n := addRSPAt(e.b[i:]); n > 0 {
			fr.sp += imm
			i += n
		} else {
			break
		}
	}
	return fr, e.leaves(i)
}

// leaves reports whether the instruction at index i ends an epilog.
func (e *epilog) leaves(i int) bool {
	b := e.b[i:]
	loaded, n := loadAt(b)
	jump := i + n
	b = b[n:]
	if len(b) > 0 && b[0] == 0xf2 { // bnd
		b = b[1:]
	}
	switch {
	case len(b) == 0:
		return false
	case b[0] == 0xc3, b[0] == 0xc2, b[0] == 0xf3 && len(b) > 1 && b[1] == 0xc3:
		return n == 0 // ret, whatever stands before
	case b[0] == 0xeb && len(b) >= 2:
		return n == 0 && e.tailJump(jump, e.addr(b[2:])+arch.Addr(int64(int8(b[1]))))
	case b[0] == 0xe9 && len(b) >= 5:
		return n == 0 && e.tailJump(jump, e.addr(b[5:])+arch.Addr(int64(int32(binary.LittleEndian.Uint32(b[1:])))))
	case b[0] == 0xff && len(b) >= 2 && b[1] == 0x25: // jmp [rip+disp]
		return n == 0 && e.tornDown(jump)
	case b[0]&0xf8 == 0x48 && len(b) >= 3 && b[1] == 0xff && b[2]&0x38 == 0x20:
		// REX.W has no effect on an indirect jump; the JIT sets it to mark a tail
		// call. Jumps through a switch table do not have it.
		reg := b[0]&1<<3 | b[2]&7
		return (n == 0 || reg == loaded) && e.tornDown(jump)
	}
	return false
}

// addr is the address at which the rest b of the code begins.
func (e *epilog) addr(b []byte) arch.Addr { return e.ip + arch.Addr(len(e.b)-len(b)-e.pos) }

// tailJump reports whether a direct jump at index i to target is a tail call:
// the jump leaves the method or starts the method again, and the frame has been
// popped.
func (e *epilog) tailJump(i int, target arch.Addr) bool {
	if target != e.f.MethodStart {
		if target.In(e.f.Start, e.f.End) || e.sameMethod != nil && e.sameMethod(target) {
			return false
		}
	}
	return e.tornDown(i)
}

// tornDown reports whether the code before the jump at index i undoes the first
// action of the prolog: only then has the frame been popped.
func (e *epilog) tornDown(i int) bool {
	first := e.firstOp()
	if first == nil || undoes(first, e.b[:i]) {
		return true
	}
	// The target may have been loaded in between.
	for _, n := range [...]int{loadImm, loadRel} {
		if i >= n {
			if _, m := loadAt(e.b[i-n:]); m == n && undoes(first, e.b[:i-n]) {
				return true
			}
		}
	}
	return false
}

// firstOp is the prolog's first action on the stack: the last of the codes. nil
// means that the method has no frame.
func (e *epilog) firstOp() *op {
	for i := len(e.ops) - 1; i >= 0; i-- {
		if o := &e.ops[i]; o.what == pushed || o.what == allocated {
			return o
		}
	}
	return nil
}

// undoes reports whether b ends in the instruction that undoes o.
func undoes(o *op, b []byte) bool {
	ends := func(n int) []byte { return b[max(0, len(b)-n):] }
	if o.what == pushed {
		reg, n := popAt(ends(2))
		if n == 2 && reg == o.reg {
			return true
		}
		reg, n = popAt(ends(1))
		return n == 1 && reg == o.reg
	}
	if _, n := addRSPAt(ends(4)); n == 4 {
		return true
	}
	_, n := addRSPAt(ends(7))
	return n == 7
}

// popAt decodes pop reg; n is its length, or 0 for any other code.
func popAt(b []byte) (reg uint8, n int) {
	switch {
	case len(b) >= 1 && b[0]&0xf8 == 0x58:
		return b[0] & 7, 1
	case len(b) >= 2 && b[0]&0xf0 == 0x40 && b[1]&0xf8 == 0x58:
		return b[0]&1<<3 | b[1]&7, 2
	}
	return 0, 0
}

// addRSPAt decodes add rsp,imm8 and add rsp,imm32.
func addRSPAt(b []byte) (imm int64, n int) {
	switch {
	case len(b) >= 4 && b[0] == 0x48 && b[1] == 0x83 && b[2] == 0xc4:
		imm, n = int64(int8(b[3])), 4
	case len(b) >= 7 && b[0] == 0x48 && b[1] == 0x81 && b[2] == 0xc4:
		imm, n = int64(int32(binary.LittleEndian.Uint32(b[3:]))), 7
	}
	if imm < 0 {
		return 0, 0 // allocates stack instead of freeing it
	}
	return imm, n
}

// Lengths of the two forms that load a 64-bit address.
const (
	loadImm = 10 // mov reg,imm64
	loadRel = 7  // mov or lea reg,[rip+disp32]
)

// loadAt decodes the load of a jump target into a register that calls do not
// preserve.
func loadAt(b []byte) (reg uint8, n int) {
	switch {
	case len(b) >= loadImm && b[0]&0xfe == 0x48 && b[1]&0xf8 == 0xb8:
		reg, n = b[0]&1<<3|b[1]&7, loadImm
	case len(b) >= loadRel && b[0]&0xfb == 0x48 && (b[1] == 0x8b || b[1] == 0x8d) && b[2]&0xc7 == 0x05:
		reg, n = b[0]&4<<1|b[2]>>3&7, loadRel
	}
	if arch.AMD64.NonVolatile.Has(reg) {
		return 0, 0
	}
	return reg, n
}
