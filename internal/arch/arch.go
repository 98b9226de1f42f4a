// Package arch describes CPU architectures to the rest of clrsnap: addresses,
// register contexts and register numbers. An architecture is a value, chosen
// once when a target is opened; supporting another architecture adds a file
// here, not a branch elsewhere.
package arch

// Arch describes one CPU architecture.
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

	// ReturnSlot is where a call puts its return address: the offset in bytes
	// from the stack pointer at the first instruction of the callee, or -1 if
	// the return address is in a register.
	ReturnSlot int

	endsInCall func(code []byte) bool
}

// EndsInCall reports whether code, the bytes before an address, ends in a call
// instruction, so that the address can be a return address.
func (a *Arch) EndsInCall(code []byte) bool { return a.endsInCall(code) }
