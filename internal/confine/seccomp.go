package confine

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// allowed are the system calls that the filter allows with any arguments: calls of Go's runtime and of the C library,
// calls that use open descriptors, and calls that open, name and remove files, which Landlock checks. A call neither
// here nor in checked is denied: new calls of later kernels, and calls that change modes, owners, extended attributes,
// limits, keys, namespaces and other processes.
var allowed = append([]uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_EPOLL_PWAIT, unix.SYS_PREAD64,
	unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_LSEEK,
	unix.SYS_CLOSE, unix.SYS_MADVISE, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP,
	unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RT_SIGACTION,
	unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL, unix.SYS_EXIT,
	unix.SYS_EXIT_GROUP, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER, unix.SYS_GETRANDOM,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_PPOLL, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_CLOSE_RANGE, unix.SYS_MEMFD_CREATE,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID,
	unix.SYS_GETEGID, unix.SYS_UNAME, unix.SYS_GETCWD, unix.SYS_GETRUSAGE, unix.SYS_SYSINFO, unix.SYS_CAPGET,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_FSTAT, fstatat, unix.SYS_STATX, unix.SYS_FSTATFS,
	unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETDENTS64, unix.SYS_LINKAT,
	unix.SYS_RENAMEAT, unix.SYS_UNLINKAT, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FADVISE64,
	unix.SYS_FALLOCATE, unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE, unix.SYS_SPLICE,
	unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_GETSOCKOPT, unix.SYS_GETSOCKNAME,
	unix.SYS_GETPEERNAME, unix.SYS_SHUTDOWN, unix.SYS_WAITID, unix.SYS_WAIT4,
}, ofMachine...)

// ofNetwork are the calls allowed with the network. Unix sockets could be connected to services of root, and
// netlink sockets reach the kernel: checked allows neither.
var ofNetwork = []uint32{
	unix.SYS_CONNECT, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SETSOCKOPT,
	unix.SYS_RECVMMSG, unix.SYS_SENDMMSG,
}

// A checkedCall is a system call that is allowed if all its checks hold.
type checkedCall struct {
	call   uint32
	checks []check
}

// A check holds if one half of an argument, with only the bits of mask, is equal to a value.
type check struct {
	half   uint32 // twice the number of the argument; plus one: the more significant half
	mask   uint32
	values []uint32
}

const all = ^uint32(0)

// checked are the calls with checked arguments.
func checked(network bool) []checkedCall {
	self := []check{{0, all, []uint32{uint32(os.Getpid())}}}
	calls := []checkedCall{
		{unix.SYS_CLONE, []check{{0, unix.CLONE_THREAD, []uint32{unix.CLONE_THREAD}}}}, // threads, not processes
		{unix.SYS_KILL, self},
		{unix.SYS_TGKILL, self},
		// The names of the runtime's memory.
		{unix.SYS_PRCTL, []check{{0, all, []uint32{unix.PR_SET_VMA}}}},
		// Terminals may be queried. Nothing is typed into terminals, and no file's flags are changed.
		{unix.SYS_IOCTL, []check{{2, all, []uint32{unix.TCGETS, unix.TIOCGWINSZ, unix.TIOCINQ}}}},
		// No process gets signals of a file (F_SETOWN).
		{unix.SYS_FCNTL, []check{{2, all, []uint32{
			unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL,
			unix.F_GET_SEALS, unix.F_ADD_SEALS,
		}}}},
	}
	if network {
		calls = append(calls,
			checkedCall{unix.SYS_SOCKET, []check{
				{0, all, []uint32{unix.AF_INET, unix.AF_INET6}},
				{2, 0xf, []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}}, // the other bits are flags
			}},
			// Of an open file, not of a named file: the cache's.
			checkedCall{unix.SYS_UTIMENSAT, []check{{2, all, []uint32{0}}, {3, all, []uint32{0}}}})
	}
	return calls
}

// auditArch is the kernel's number of our system call interface.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// filterCalls sets the filter, and no_new_privs, for all threads. On a kernel without
// filters, or in a container that allows no filter, only no_new_privs is set
// (seccomp(2)).
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

// setFilter sets a filter, and no_new_privs, for all threads: the kernel applies the
// filter to the other threads (TSYNC), faster than a call on each thread.
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

// load makes a filter load a field of struct seccomp_data, and jump makes the filter compare the loaded value with
// k, and skip yes or no instructions.
func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jump(how uint16, k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jt: uint8(yes), Jf: uint8(no), K: k}
}

func answer(what uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what}
}

var (
	allow = answer(unix.SECCOMP_RET_ALLOW)
	deny  = answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	// Without clone3 the C library makes threads with clone; a filter can see clone's flags.
	unknown = answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
)

// filter is the program. Another interface of the kernel, for example x86-64's x32, has other numbers for its calls,
// or another machine's number.
func filter(network bool) []unix.SockFilter {
	const nr, architecture = 0, 4 // offsets in struct seccomp_data
	calls := allowed
	if network {
		calls = slices.Concat(allowed, ofNetwork)
	}
	program := []unix.SockFilter{load(architecture), jump(unix.BPF_JEQ, auditArch, 1, 0), deny, load(nr)}
	for _, c := range calls {
		program = append(program, jump(unix.BPF_JEQ, c, 0, 1), allow)
	}
	for _, c := range checked(network) {
		body := c.program()
		program = append(append(program, jump(unix.BPF_JEQ, c.call, 0, len(body))), body...)
	}
	return append(program, jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), unknown, deny)
}

// program is the part of the filter that decides about a call.
func (c *checkedCall) program() (p []unix.SockFilter) {
	const arguments = 16 // in struct seccomp_data
	for _, check := range c.checks {
		p = append(p, load(arguments+4*check.half),
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: check.mask})
		for i, value := range check.values {
			p = append(p, jump(unix.BPF_JEQ, value, len(check.values)-i, 0)) // beyond deny
		}
		p = append(p, deny)
	}
	return append(p, allow)
}
