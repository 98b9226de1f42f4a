package live

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// urgency is the niceness of what has to be done in time. It matters on a machine
// whose processors are all busy with the target.
const urgency = -10

// Urgently calls f on an OS thread of its own, which is given processors sooner
// than others if we may ask for that.
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
