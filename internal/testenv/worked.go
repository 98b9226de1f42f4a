package testenv

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Worked returns the CPU time of f on this thread. The time is the same however busy the machine is.
func Worked(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	f()
	return threadTime() - before
}

func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err) // the kernel refuses only bad arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
