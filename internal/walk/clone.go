package walk

import (
	"clrsnap/internal/arch"
)

// The C library's clone and clone3 after the system call. Their call frame information has a hole
// there, because the instructions run in the old thread and in the new thread (glibc,
// sysdeps/unix/sysv/linux/x86_64/clone3.S and clone.S).
//
// syscall; test rax, rax; jl to the error; je new; ret; new: xor ebp, ebp
var cloneTail = []byte{0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c, 0, 0x74, 0x01, 0xc3, 0x31, 0xed}

// Offsets in cloneTail.
const (
	cloneCall     = 0
	cloneTest     = 2
	cloneError    = 5 // jl; the distance is not compared
	cloneDistance = 6
	cloneSplit    = 7
	cloneReturn   = 9
)

// newThread steps from these instructions. In the new thread they are the base of the stack; in
// the old thread the return address is on top of the stack. After the system call rax tells the
// two threads apart.
func (u *unwinding) newThread() (base, ok bool) {
	rax, known := u.ctx.Reg(arch.RAX)
	var code [12]byte
	if !u.exact || u.w.mem.ReadMemory(code[:], u.ctx.IP) != nil {
		return false, false
	}
	for _, at := range [...]int{cloneCall, cloneTest, cloneError, cloneSplit, cloneReturn} {
		if !isCloneTail(code[:], at) {
			continue
		}
		if at != cloneCall && at != cloneReturn {
			if !known {
				return false, false
			}
			if rax == 0 {
				return true, true
			}
		}
		return false, u.leafStep(0) == nil
	}
	return false, false
}

// isCloneTail compares code with cloneTail from offset at on.
func isCloneTail(code []byte, at int) bool {
	for i, want := range cloneTail[at:] {
		if at+i != cloneDistance && code[i] != want {
			return false
		}
	}
	return true
}
