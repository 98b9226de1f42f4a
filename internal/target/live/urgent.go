package live

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// urgency is the nice value of work that must be done in time. It matters on a machine
// whose CPUs are all busy with the target.
const urgency = -10

// Urgently calls f on an OS thread of its own, with a higher priority than others if that
// is permitted.
func Urgently(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with us
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, urgency)
		f()
	}()
	<-done
}
