package core

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
)

// TestRegisters: each word of an NT_PRSTATUS note has the kernel's meaning.
func TestRegisters(t *testing.T) {
	l := layouts[62]
	note := make([]byte, l.prstatus)
	binary.LittleEndian.PutUint32(note[prPID:], 4242)
	const first = 1000 // the value of the first register; each further register has one more
	for i := range 27 {
		binary.LittleEndian.PutUint64(note[prReg+8*i:], uint64(first+i))
	}
	th, err := l.thread(note)
	if err != nil {
		t.Fatal(err)
	}
	// struct user_regs_struct (Linux, arch/x86/include/asm/user_64.h)
	order := []string{
		"r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi",
		"orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base",
	}
	has := map[string]uint64{}
	for i, name := range order {
		has[name] = uint64(first + i)
	}
	for r, name := range arch.AMD64.RegNames {
		if v, ok := th.Context.Reg(uint8(r)); !ok || v != has[name] {
			t.Errorf("%s is %d, want %d", name, v, has[name])
		}
	}
	if th.TID != 4242 || th.Context.IP != arch.Addr(has["rip"]) || th.Syscall != int64(has["orig_rax"]) ||
		th.local != arch.Addr(has["fs_base"]) {
		t.Errorf("%+v", th)
	}
	if _, err := l.thread(note[1:]); err == nil {
		t.Error("a note that is too short is taken")
	}
}
