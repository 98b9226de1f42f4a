package perfevent

import (
	"encoding/binary"

	"clrsnap/internal/arch"

	"golang.org/x/sys/unix"
)

// regOrder maps the kernel's register numbers to ours, for the requested registers: enum
// perf_event_x86_regs in arch/x86/include/uapi/asm/perf_regs.h. Flags and segment registers are
// left out.
var regOrder = []struct {
	bit uint8
	reg uint8 // or regIP
}{
	{0, arch.RAX}, {1, arch.RBX}, {2, arch.RCX}, {3, arch.RDX}, {4, arch.RSI}, {5, arch.RDI}, {6, arch.RBP},
	{7, arch.RSP}, {8, regIP}, {16, arch.R8}, {17, arch.R9}, {18, arch.R10}, {19, arch.R11},
	{20, arch.R12}, {21, arch.R13}, {22, arch.R14}, {23, arch.R15},
}

const (
	regIP      = 0xff
	sampleRegs = 0xff01ff // the bits of regOrder
	numRegs    = 17       // the number of bits
)

// readContext reads the registers of a sample, in ascending order of their numbers. The registers
// of a 32-bit program are not read.
func readContext(c *arch.Context, abi uint64, words []byte) {
	if abi != unix.PERF_SAMPLE_REGS_ABI_64 {
		*c = arch.Context{}
		return
	}
	c.Machine, c.Valid = arch.MachineAMD64, 1<<16-1
	for i, r := range regOrder {
		v := binary.LittleEndian.Uint64(words[8*i:])
		if r.reg == regIP {
			c.IP = arch.Addr(v)
		} else {
			c.Regs[r.reg] = v
		}
	}
}
