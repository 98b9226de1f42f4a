package core

import (
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
)

// layout has the differences between architectures: the offsets of registers in the description
// of an NT_PRSTATUS note.
type layout struct {
	arch     *arch.Arch
	prstatus int   // size of the description, in bytes
	ip       int   // offset of the instruction pointer
	regs     []int // offsets of the integer registers, by our numbers
	syscall  int   // offset of the number of the system call
	local    int   // offset of the address of the thread-local storage

	// Offsets of the thread's id in C libraries, from the thread-local storage.
	ids []arch.Addr
}

// layouts are the readable architectures, by e_machine.
var layouts = map[uint16]*layout{
	62: { // EM_X86_64
		arch:     arch.AMD64,
		prstatus: 336,
		ip:       prReg + 16*8,
		// struct user_regs_struct (Linux, arch/x86/include/asm/user_64.h) begins with
		//   r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs
		//   eflags rsp; ours are rax rcx rdx rbx rsp rbp rsi rdi r8 … r15.
		regs:    words(10, 11, 12, 5, 19, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0),
		syscall: prReg + 15*8,
		local:   prReg + 21*8, // fs_base
		// struct pthread of glibc (nptl/descr.h; the same since 2.17 at least) and of musl
		// (src/internal/pthread_impl.h).
		ids: []arch.Addr{720, 48},
	},
}

// Offsets in struct elf_prstatus of 64-bit Linux (include/linux/elfcore.h).
const (
	prCursig = 12  // 2 bytes
	prPID    = 32  // 4 bytes
	prReg    = 112 // the registers
)

func words(index ...int) []int {
	for i := range index {
		index[i] = prReg + 8*index[i]
	}
	return index
}

// thread decodes the description of an NT_PRSTATUS note.
func (l *layout) thread(b []byte) (Thread, error) {
	if len(b) != l.prstatus {
		return Thread{}, fmt.Errorf("the dump is damaged: a thread's registers have %d bytes instead of %d", len(b),
			l.prstatus)
	}
	le := binary.LittleEndian
	t := Thread{TID: int(int32(le.Uint32(b[prPID:]))), Syscall: int64(le.Uint64(b[l.syscall:]))}
	t.local = arch.Addr(le.Uint64(b[l.local:]))
	t.Context = arch.Context{Machine: l.arch.Machine, IP: arch.Addr(le.Uint64(b[l.ip:]))}
	for r, off := range l.regs {
		t.Context.Set(uint8(r), le.Uint64(b[off:]))
	}
	// A thread that has never been in user mode (a kernel worker of io_uring) has no registers in
	// the note.
	if sp, _ := t.Context.Reg(l.arch.SP); sp == 0 && t.Context.IP == 0 {
		t.Context.Valid = 0
		t.Syscall = -1
	}
	if t.Syscall < 0 {
		t.Syscall = -1
	}
	return t, nil
}

// machineName names an unsupported e_machine.
func machineName(m uint16) string {
	switch m {
	case 3:
		return "a 32-bit x86 process"
	case 40:
		return "a 32-bit ARM process"
	case 183:
		return "an arm64 machine"
	case 243:
		return "a RISC-V machine"
	case 258:
		return "a LoongArch machine"
	}
	return fmt.Sprintf("another machine (e_machine %d)", m)
}
