package live

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// highPriority is the nice value of work that must be done in time. It matters on a machine
// whose CPUs are all busy with the target.
const highPriority = -10

// RunAtHighPriority calls f on an OS thread of its own, with a higher priority than others if that
// is permitted.
func RunAtHighPriority(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with us
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, highPriority)
		f()
	}()
	<-done
}
