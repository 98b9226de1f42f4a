package live

import (
	"os"
	"runtime"
	"slices"

	"clrsnap/internal/procfs"

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

// RunAloneAtHighPriority is RunAtHighPriority for what this process has been started for: see Alone. It calls f in this
// goroutine meanwhile, with the priority of all threads raised. To be woken, a goroutine with an OS thread of its own
// takes a switch to another thread first. f starts no process: it would have that priority, too.
func RunAloneAtHighPriority(f func()) {
	if !isAlone() {
		RunAtHighPriority(f)
		return
	}
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if nice := kernelPriority - before; err == nil && nice > highPriority {
		setPriorities(highPriority)
		defer setPriorities(nice)
	}
	f()
}

// kernelPriority minus the nice value is what the system call getpriority(2) returns.
const kernelPriority = 20

// setPriorities sets the nice value of all OS threads of this process. Those that they start have it, too.
func setPriorities(nice int) {
	self, err := procfs.Self()
	if err != nil {
		return
	}
	defer self.Close()
	for range 2 { // once more for those that were being started
		threads, _ := self.Tasks()
		if !slices.Contains(threads, os.Getpid()) {
			return // this /proc is that of another PID namespace: the numbers are those of others here
		}
		for _, t := range threads {
			_ = unix.Setpriority(unix.PRIO_PROCESS, t, nice)
		}
	}
}
