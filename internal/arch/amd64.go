package arch

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
	RegNames: []string{
		"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	},
	SP:          RSP,
	FP:          RBP,
	NonVolatile: 1<<RBX | 1<<RSP | 1<<RBP | 1<<R12 | 1<<R13 | 1<<R14 | 1<<R15,
	DWARF:       []uint8{RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15},
	DWARFReturn: 16,
	ContextRegs: []uint16{0x78, 0x80, 0x88, 0x90, 0x98, 0xa0, 0xa8, 0xb0, 0xb8, 0xc0, 0xc8, 0xd0, 0xd8, 0xe0,
		0xe8, 0xf0},
	ContextIP:   0xf8,
	CalleeSaved: map[string]uint8{"Rbx": RBX, "Rbp": RBP, "R12": R12, "R13": R13, "R14": R14, "R15": R15},
	ReturnSlot:  0,
	endsInCall:  amd64EndsInCall,
}

// amd64EndsInCall knows the near calls: E8 with a 32-bit distance, and FF /2
// with every form of operand. The ModRM byte gives the operand's length (Intel
// SDM volume 2, CALL and table 2-2). Prefixes lie further ahead and do not
// matter.
func amd64EndsInCall(code []byte) bool {
	n := len(code)
	at := func(back int) (byte, bool) {
		if back > n {
			return 0, false
		}
		return code[n-back], true
	}
	if op, ok := at(5); ok && op == 0xe8 {
		return true
	}
	for length := 2; length <= 7; length++ {
		op, ok := at(length)
		if !ok || op != 0xff {
			continue
		}
		modrm, _ := at(length - 1)
		if modrm>>3&7 == 2 && amd64OperandLen(modrm, code[n-length+2:]) == length-2 {
			return true
		}
	}
	return false
}

// amd64OperandLen is the number of bytes behind a ModRM byte; rest begins with
// the SIB byte if there is one.
func amd64OperandLen(modrm byte, rest []byte) int {
	mod, rm := modrm>>6, modrm&7
	if mod == 3 {
		return 0
	}
	n := [3]int{0, 1, 4}[mod]
	switch {
	case rm == 4: // SIB
		if len(rest) > 0 && mod == 0 && rest[0]&7 == 5 {
			n = 4
		}
		n++
	case mod == 0 && rm == 5: // relative to the instruction pointer
		n = 4
	}
	return n
}
