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

// Machine names the CPU architecture that a Context belongs to.
type Machine uint8

// The architectures that have a number. Zero is no architecture, so that a
// Context that was not filled in is recognised.
const (
	_ Machine = iota
	MachineAMD64
	MachineARM64
)

// Context is the register context of one frame: the instruction pointer and
// those integer registers whose value in that frame is known. A register whose
// bit in Valid is clear is undefined and must not be read.
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
