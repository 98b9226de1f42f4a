package live

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls of a recording, made again and again. They take a microsecond, and Go's scheduler
// is not told of them: otherwise a thread of Go's runtime would check their duration every 20 µs.

// alone counts the callers of Alone that have not called end.
var alone atomic.Int32

// Alone declares that our process only records until end is called, with a GOMAXPROCS of at least
// 2. Meanwhile reads of a target's memory do not tell Go's scheduler. A target that keeps its
// readers waiting (userfaultfd) then keeps one of Go's CPUs, and keeps a garbage collection from
// ending.
func Alone() (end func()) {
	alone.Add(1)
	return sync.OnceFunc(func() { alone.Add(-1) })
}

func isAlone() bool { return alone.Load() > 0 }

// pread is pread(2) for a file of /proc.
func pread(fd int, b []byte, offset int64) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), uintptr(offset), 0, 0)
	return counted(n, e)
}

// ready is poll(2) for one descriptor, without waiting.
func ready(fd int) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	n, _, e := syscall.RawSyscall(unix.SYS_POLL, uintptr(unsafe.Pointer(&p)), 1, 0)
	return e == 0 && n > 0
}

// readClock returns 0 for a missing clock, for example the clock of an exited process.
func readClock(id int32) time.Duration {
	var ts unix.Timespec
	if _, _, e := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}

// futexSleep sleeps until *p is no longer v, for d at most.
func futexSleep(p *uint32, v uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	if isAlone() {
		_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexWaitPrivate, uintptr(v),
			uintptr(unsafe.Pointer(&ts)), 0, 0)
		return
	}
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexWaitPrivate, uintptr(v),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// readVM is process_vm_readv(2).
func readVM(pid int, local []unix.Iovec, remote []unix.RemoteIovec) (int, error) {
	if !isAlone() {
		return unix.ProcessVMReadv(pid, local, remote, 0)
	}
	n, _, e := syscall.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
		uintptr(unsafe.Pointer(unsafe.SliceData(local))), uintptr(len(local)),
		uintptr(unsafe.Pointer(unsafe.SliceData(remote))), uintptr(len(remote)), 0)
	return counted(n, e)
}

func counted(n uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return -1, e
	}
	return int(n), nil
}
