// Package arch says what the rest of clrsnap needs to know about a processor
// architecture: addresses, register contexts and register numbers. An
// architecture is one value, chosen once when a target is opened; supporting
// another one adds a file here, not a branch elsewhere.
package arch

// Arch describes one processor architecture.
type Arch struct {
	Name        string
	Machine     Machine
	PointerSize int
	RegNames    []string // by register number
	SP, FP      uint8
	NonVolatile RegMask // integer registers that a call preserves, SP included

	// DWARF maps DWARF register numbers to ours; the entry at DWARFReturn is
	// the return address column and is not a register.
	DWARF       []uint8
	DWARFReturn int

	// Offsets in bytes inside the Windows-style CONTEXT that CoreCLR keeps on
	// every operating system (src/coreclr/pal/inc/pal.h, struct _CONTEXT).
	ContextRegs []uint16
	ContextIP   uint16

	// CalleeSaved lists the registers of the runtime's CalleeSavedRegisters
	// structure by their field names in the data descriptor.
	CalleeSaved map[string]uint8

	// ReturnSlot is how a call leaves its return address: the offset in bytes
	// from the stack pointer at the first instruction of the callee, or -1
	// where it is in a register.
	ReturnSlot int
}

// Register numbers of AMD64: the numbers that instructions encode.
const (
	RAX uint8 = iota
	RCX
	RDX
	RBX
	RSP
	RBP
	RSI
	RDI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
)

// AMD64 is x86-64 with the System V calling convention, as CoreCLR uses it on
// Linux.
var AMD64 = &Arch{
	Name:        "amd64",
	Machine:     MachineAMD64,
	PointerSize: 8,
	RegNames:    []string{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"},
	SP:          RSP,
	FP:          RBP,
	NonVolatile: 1<<RBX | 1<<RSP | 1<<RBP | 1<<R12 | 1<<R13 | 1<<R14 | 1<<R15,
	DWARF:       []uint8{RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15},
	DWARFReturn: 16,
	ContextRegs: []uint16{0x78, 0x80, 0x88, 0x90, 0x98, 0xa0, 0xa8, 0xb0, 0xb8, 0xc0, 0xc8, 0xd0, 0xd8, 0xe0, 0xe8, 0xf0},
	ContextIP:   0xf8,
	CalleeSaved: map[string]uint8{"Rbx": RBX, "Rbp": RBP, "R12": R12, "R13": R13, "R14": R14, "R15": R15},
	ReturnSlot:  0,
}
