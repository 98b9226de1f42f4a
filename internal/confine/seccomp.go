package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// denied are the system calls that the filter denies: those that make a socket, unless the network is allowed,
// start a program, or reach into another process.
var denied = []uint32{
	unix.SYS_SOCKET,         // the first: see filter
	unix.SYS_IO_URING_SETUP, // io_uring makes sockets, too
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
}

// auditArch is what the kernel calls our system call interface.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// x32Bit marks the calls of x86-64's other interface, x32, which is not used here.
const x32Bit = 0x40000000

// filterCalls sets the filter, and no_new_privs, for all threads. A kernel that has no
// filters, or a container that allows none, is left at no_new_privs (seccomp(2)).
func filterCalls(network bool) error {
	err := setFilter(filter(network))
	if err == unix.ENOSYS || err == unix.EINVAL || err == unix.EPERM {
		if _, _, e := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
			return e
		}
		return nil
	}
	return err
}

// setFilter sets a filter, and no_new_privs, for all threads: the kernel applies it to the
// others (TSYNC), which is faster than a call on each of them.
func setFilter(program []unix.SockFilter) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&f)))
	if e != 0 {
		return e
	}
	if thread != 0 {
		return fmt.Errorf("thread %d has another seccomp filter", thread)
	}
	return nil
}

// filter is the program.
func filter(network bool) []unix.SockFilter {
	denied := denied
	if network {
		denied = denied[1:]
	}
	const nr, architecture = 0, 4 // offsets in struct seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	answer := func(what uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what} }
	// jump compares what was loaded with k, and skips yes or no instructions.
	jump := func(how uint16, k uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jt: uint8(yes), Jf: uint8(no), K: k}
	}
	n := len(denied)
	program := []unix.SockFilter{
		load(architecture),
		jump(unix.BPF_JEQ, auditArch, 0, n+3),
		load(nr),
		jump(unix.BPF_JGE, x32Bit, n+1, 0),
	}
	for i, call := range denied {
		program = append(program, jump(unix.BPF_JEQ, call, n-i, 0))
	}
	return append(program, answer(unix.SECCOMP_RET_ALLOW), answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)))
}
