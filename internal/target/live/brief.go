package live

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls that a recording makes again and again. They take a microsecond, and Go's scheduler is not told of them:
// a thread of Go's runtime would begin to look every 20 µs how long they take.

// alone is how many callers of Alone have not ended it.
var alone atomic.Int32

// Alone says that this process does nothing but record until end is called, with Go's GOMAXPROCS at least 2. Meanwhile
// memory of a target is read without telling Go's scheduler: a target that keeps its readers waiting (userfaultfd)
// keeps one of the CPUs for Go, and a garbage collection from ending.
func Alone() (end func()) {
	alone.Add(1)
	return sync.OnceFunc(func() { alone.Add(-1) })
}

func isAlone() bool { return alone.Load() > 0 }

// pread is pread(2) of a file of /proc.
func pread(fd int, b []byte, offset int64) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), uintptr(offset), 0, 0)
	return counted(n, e)
}

// ready is poll(2) of one descriptor, without waiting.
func ready(fd int) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	n, _, e := syscall.RawSyscall(unix.SYS_POLL, uintptr(unsafe.Pointer(&p)), 1, 0)
	return e == 0 && n > 0
}

// readClock returns 0 for a clock that does not exist, such as that of an exited process.
func readClock(id int32) time.Duration {
	var ts unix.Timespec
	if _, _, e := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}

// futexSleep waits for a change of *p from v, for d at most.
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
