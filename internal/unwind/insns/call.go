package insns

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// maxThunks is the number of jumps that may lie between a call and a function: a PLT
// entry, or a PLT entry in each of two modules.
const maxThunks = 3

// endbr64 may come before the jump of a PLT entry.
const endbr64 = 0x0f1e

// Callees returns the functions that may have been called by the call before the
// instruction pointer of c, a return address. PLT entries are followed to their functions.
// Mostly there is a single function; there are several if the bytes before the address can
// be calls of several lengths, and none if the target is not known. The registers of c are
// the registers after the call; for a call through memory, the pointer is read now.
func Callees(mem target.Memory, a *arch.Arch, c *arch.Context) []arch.Addr {
	if a.Machine != arch.AMD64.Machine {
		return nil
	}
	const shortest, longest = 2, 7 // bytes of a call
	var starts []arch.Addr
	s := newSearch(mem, a)
	for n := arch.Addr(shortest); n <= longest; n++ {
		in, ok := s.fetch(c.IP - n)
		if !ok || !in.isCall() || in.length != int(n) {
			continue
		}
		if start, ok := s.callee(&in, c, a.NonVolatile); ok {
			starts = append(starts, s.behindThunks(start))
		}
	}
	return starts
}

// callee returns the target of a call. Registers that a call does not preserve have
// other values by now.
func (s *search) callee(in *insn, c *arch.Context, preserved arch.RegMask) (arch.Addr, bool) {
	if in.op == 0xe8 {
		return in.target(c.IP), true
	}
	if at, ok := in.pointer(c.IP); ok {
		return s.pointer(at)
	}
	now := state{}
	for r := range uint8(registers) {
		if preserved.Has(r) {
			now.regs[r] = first(r)
		}
	}
	at := now.regs[in.rmReg()]
	if in.mod() != 3 {
		at = now.memory(in)
	}
	v, known := c.Reg(at.base)
	if at.kind != sum || !known {
		return 0, false
	}
	to := arch.Addr(v) + arch.Addr(int64(at.off))
	if in.mod() == 3 {
		return to, true
	}
	return s.pointer(to)
}

// behindThunks follows the jumps of PLT entries.
func (s *search) behindThunks(at arch.Addr) arch.Addr {
	start := at
	for range maxThunks {
		in, ok := s.fetch(start)
		if ok && !in.vector && in.op == endbr64 {
			start += arch.Addr(in.length)
			in, ok = s.fetch(start)
		}
		if !ok || in.flow() != flowAway {
			break
		}
		from, ok := in.pointer(start + arch.Addr(in.length))
		if !ok {
			break
		}
		if start, ok = s.pointer(from); !ok {
			break
		}
		at = start
	}
	return at
}

// pointer returns the address that a memory operand names relative to the next
// instruction.
func (in *insn) pointer(next arch.Addr) (arch.Addr, bool) {
	if in.mod() != 0 || in.rm() != 5 {
		return 0, false
	}
	return next + arch.Addr(int64(int32(binary.LittleEndian.Uint32(in.modrm[1:])))), true
}

// pointer reads a pointer.
func (s *search) pointer(at arch.Addr) (arch.Addr, bool) {
	var b [word]byte
	if s.mem.ReadMemory(b[:], at) != nil {
		return 0, false
	}
	return arch.Addr(binary.LittleEndian.Uint64(b[:])), true
}
