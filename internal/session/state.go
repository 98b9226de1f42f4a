package session

import (
	"fmt"

	"clrsnap/internal/target"
)

// stateRunning is the state of a thread outside system calls.
const stateRunning = "running"

// state says in words what a captured thread was doing.
func state(c *target.Capture) string {
	switch {
	case c.SyscallNr < 0 && c.Busy():
		return stateRunning
	case c.SyscallNr < 0:
		return "blocked in the kernel" // by a page fault, for example
	}
	if wakes(c) {
		return "in " + Syscalls[c.SyscallNr]
	}
	return InCall(c.SyscallNr)
}

// InCall says in words what a thread does that is blocked in a system call: "sleeping (clock_nanosleep)".
func InCall(nr int64) string {
	name, ok := Syscalls[nr]
	if !ok {
		name = fmt.Sprintf("system call %d", nr)
	}
	if verb, ok := waiting[name]; ok {
		return verb + " (" + name + ")"
	}
	return "in " + name
}

// wakes reports whether a thread's futex(2) call wakes other threads, or does something else without a wait.
func wakes(c *target.Capture) bool {
	if c.SyscallNr != futexCall || c.SyscallArgs == [6]uint64{} {
		return false // the call, or its operation, is not known
	}
	switch c.SyscallArgs[1] &^ futexFlags {
	case futexWait, futexWaitBitset, futexLock, futexWaitRequeue, futexLock2:
		return false
	}
	return true
}

// waiting has the system calls in which threads wait, and a verb for each wait.
var waiting = map[string]string{
	"futex": "waiting", "semop": "waiting", "semtimedop": "waiting",
	"poll": "waiting for I/O", "ppoll": "waiting for I/O", "select": "waiting for I/O", "pselect6": "waiting for I/O",
	"epoll_wait": "waiting for I/O", "epoll_pwait": "waiting for I/O",
	"read": "reading", "readv": "reading", "pread64": "reading", "recvfrom": "receiving", "recvmsg": "receiving",
	"accept": "accepting", "accept4": "accepting", "connect": "connecting",
	"write": "writing", "writev": "writing", "pwrite64": "writing", "fsync": "writing",
	"sendto": "sending", "sendmsg": "sending",
	"nanosleep": "sleeping", "clock_nanosleep": "sleeping", "pause": "sleeping",
	"wait4": "waiting for a process", "waitid": "waiting for a process", "vfork": "waiting for a process",
	"flock":           "waiting for a file lock",
	"rt_sigtimedwait": "waiting for a signal", "rt_sigsuspend": "waiting for a signal",
	"io_getevents": "waiting for I/O", "io_uring_enter": "waiting for I/O", "open": "opening", "openat": "opening",
	"sched_yield": "yielding",
	// A wait that was interrupted, by a capture for example, and goes on.
	"restart_syscall": "waiting",
}

// Syscalls are the numbers of these system calls on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), and of a few
// more system calls that occur in runtimes.
var Syscalls = map[int64]string{
	0: "read", 1: "write", 2: "open", 7: "poll", 9: "mmap", 10: "mprotect", 11: "munmap", 14: "rt_sigprocmask",
	15: "rt_sigreturn", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select",
	24: "sched_yield", 28: "madvise", 34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto",
	45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 60: "exit",
	61: "wait4", 62: "kill", 65: "semop", 73: "flock", 74: "fsync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend",
	202: "futex", 208: "io_getevents", 219: "restart_syscall", 220: "semtimedop", 228: "clock_gettime",
	230: "clock_nanosleep", 231: "exit_group", 232: "epoll_wait", 234: "tgkill", 247: "waitid", 257: "openat",
	270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4", 324: "membarrier", 426: "io_uring_enter",
	435: "clone3", 441: "epoll_pwait2",
}
