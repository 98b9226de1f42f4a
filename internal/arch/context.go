package arch

import "math/bits"

// MaxRegs is the number of integer registers that a Context has room for.
const MaxRegs = 32

// RegMask is a set of integer registers: bit n stands for register n in the
// numbering of the architecture.
type RegMask uint32

// Has reports whether register r is in the set.
func (m RegMask) Has(r uint8) bool { return m&(1<<r) != 0 }

// Len is the number of registers in the set.
func (m RegMask) Len() int { return bits.OnesCount32(uint32(m)) }

// Machine names the CPU architecture of a Context.
type Machine uint8

// The architectures with a number. Zero is no architecture, so that an empty
// Context is recognised.
const (
	_ Machine = iota
	MachineAMD64
	MachineARM64
)

// Context is the register context of a frame: the instruction pointer and the
// integer registers with a known value in the frame. A register whose bit in
// Valid is clear is undefined and must not be read.
type Context struct {
	Regs    [MaxRegs]uint64
	IP      Addr
	Valid   RegMask
	Machine Machine
}

// Reg returns the value of register r and whether it is known.
func (c *Context) Reg(r uint8) (uint64, bool) {
	if int(r) >= MaxRegs || !c.Valid.Has(r) {
		return 0, false
	}
	return c.Regs[r], true
}

// Set gives register r a value and marks it as known.
func (c *Context) Set(r uint8, v uint64) {
	c.Regs[r] = v
	c.Valid |= 1 << r
}
