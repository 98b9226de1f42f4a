package live

import (
	"syscall"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/target/iter"

	"golang.org/x/sys/unix"
)

var hostArch = arch.AMD64

const (
	hostELF = 62  // EM_X86_64
	redZone = 128 // bytes below the stack pointer that a leaf function may use
)

// regs is the buffer of PTRACE_GETREGS.
type regs struct{ unix.PtraceRegs }

//go:norace
//go:nosplit
func (r *regs) get(tid uintptr) syscall.Errno {
	_, e := raw6(unix.SYS_PTRACE, unix.PTRACE_GETREGS, tid, 0, uintptr(unsafe.Pointer(&r.PtraceRegs)), 0, 0)
	return e
}

// set copies the kernel's registers. PTRACE_GETREGS returns the same registers first, and then
// some segment registers.
func (r *regs) set(from *iter.Regs) { *(*iter.Regs)(unsafe.Pointer(&r.PtraceRegs)) = *from }

//go:norace
//go:nosplit
func (r *regs) sp() uint64 { return r.Rsp }

// syscallNr is the number of the thread's current system call, or -1.
func (r *regs) syscallNr() int64 { return int64(r.Orig_rax) }

func (r *regs) syscallArgs() [6]uint64 {
	return [6]uint64{r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9}
}

// context stores the integer registers under the numbers of the instruction encoding.
func (r *regs) context(c *arch.Context) {
	*c = arch.Context{Machine: arch.MachineAMD64, IP: arch.Addr(r.Rip), Valid: 1<<16 - 1}
	copy(c.Regs[:], []uint64{r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15})
}

// contextSP is the context of a thread with only IP and SP known.
func contextSP(c *arch.Context, ip, sp uint64) {
	*c = arch.Context{Machine: arch.MachineAMD64, IP: arch.Addr(ip)}
	c.Set(arch.RSP, sp)
}

// contextArgs adds the arguments of the thread's current system call: their registers still hold
// them. The C library's vfork keeps its return address in such a register, so vfork's caller is
// known without a stop.
func contextArgs(c *arch.Context, args [6]uint64) {
	for i, reg := range [...]uint8{arch.RDI, arch.RSI, arch.RDX, arch.R10, arch.R8, arch.R9} {
		c.Set(reg, args[i])
	}
}
