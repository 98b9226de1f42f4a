package amd64

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/unwind"
)

// machFrame is a step through a machine frame: the values that the CPU pushes
// on an interrupt (rip, cs, rflags, rsp, ss). The caller's stack pointer is
// read from memory, so the step has no common form.
type machFrame struct {
	base  uint8
	ip    int64 // where the interrupted rip lies, relative to base
	mask  arch.RegMask
	where [16]int64
}

// machRSP is the distance in bytes from rip to rsp in a machine frame.
const machRSP = 3 * 8

func (fr *frame) machStep() *unwind.Step {
	m := fr.mach
	m.base, m.mask, m.where = fr.base, fr.mask, fr.where
	return &unwind.Step{Slow: m, Signal: true, SP: arch.RSP}
}

// Step implements unwind.Stepper.
func (m *machFrame) Step(c *arch.Context, s *target.Stack) error {
	base, ok := c.Reg(m.base)
	if !ok {
		return unwind.ErrRegister
	}
	at := func(off int64) arch.Addr { return arch.Addr(base + uint64(off)) }
	ip, ok := s.Uint64(at(m.ip))
	if !ok {
		return unwind.ErrStack
	}
	sp, ok := s.Uint64(at(m.ip + machRSP))
	if !ok {
		return unwind.ErrStack
	}
	c.Valid &= arch.AMD64.NonVolatile
	for reg := uint8(0); reg < 16; reg++ {
		if !m.mask.Has(reg) {
			continue
		}
		v, ok := s.Uint64(at(m.where[reg]))
		if !ok {
			return unwind.ErrStack
		}
		c.Set(reg, v)
	}
	c.Set(arch.RSP, sp)
	c.IP = arch.Addr(ip)
	return nil
}
