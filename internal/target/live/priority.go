package live

import (
	"os"
	"runtime"
	"slices"
	"sync"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// highPriority is the nice value of work that must be done in time. It matters on a machine
// whose CPUs are all busy with the target.
const highPriority = -10

// always are the OS threads of RunAtHighPriority, by their ids. It is locked while a thread's priority changes.
var always = struct {
	sync.Mutex
	tids map[int]bool
}{tids: map[int]bool{}}

// RunAtHighPriority calls f on an OS thread of its own, with a higher priority than others if that
// is permitted. No Priority changes that thread's.
func RunAtHighPriority(f func()) {
	onItsOwn(func() {
		tid := unix.Gettid()
		always.Lock()
		always.tids[tid] = true
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, highPriority)
		always.Unlock()
		defer func() {
			always.Lock()
			delete(always.tids, tid)
			always.Unlock()
		}()
		f()
	})
}

// hurried is the nice value of work that takes part of a second: on a machine with many busy threads for each CPU, the
// next ones would keep it waiting for a hundred times as long.
const hurried = -20

// Hurry gives the calling goroutine an OS thread for itself, with a higher priority than others if that is permitted,
// until end is called. If somebody has chosen a priority for this process, that stays.
func Hurry() (end func()) {
	runtime.LockOSThread()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || before != kernelPriority || unix.Setpriority(unix.PRIO_PROCESS, 0, hurried) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) // to have less is always permitted
		runtime.UnlockOSThread()
	}
}

// onItsOwn calls f on an OS thread of its own.
func onItsOwn(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with us
		f()
	}()
	<-done
}

// A Priority is that of the OS threads that do some work: see RunWithPriority.
type Priority struct {
	all    bool // those of this process, not only the one that the work has for itself
	normal int  // nice value
}

// RunWithPriority calls f, which can raise the priority that it has, if that is permitted. f runs on an OS thread of
// its own. If this is what the process has been started for, it runs in this goroutine: see Alone. To be woken, a
// goroutine with an OS thread of its own takes a switch to another thread first. In that case f starts no process: it
// would have the same priority.
func RunWithPriority(f func(*Priority)) {
	p := &Priority{all: isAlone(), normal: highPriority}
	if before, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		p.normal = kernelPriority - before
	}
	if p.all {
		defer p.Raise(false)
		f(p)
		return
	}
	onItsOwn(func() { f(p) })
}

// Raise makes the priority higher than that of other processes, or what it was before.
func (p *Priority) Raise(high bool) {
	if p.normal <= highPriority {
		return
	}
	nice := p.normal
	if high {
		nice = highPriority
	}
	if p.all {
		setPriorities(nice)
	} else {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
	}
}

// kernelPriority minus the nice value is what the system call getpriority(2) returns.
const kernelPriority = 20

// setPriorities sets the nice value of all OS threads of this process but those of RunAtHighPriority. Those that they
// start have it, too.
func setPriorities(nice int) {
	self, err := procfs.Self()
	if err != nil {
		return
	}
	defer self.Close()
	always.Lock()
	defer always.Unlock()
	for range 2 { // once more for those that were being started
		threads, _ := self.Tasks()
		if !slices.Contains(threads, os.Getpid()) {
			return // this /proc is that of another PID namespace: the numbers are those of others here
		}
		for _, t := range threads {
			if always.tids[t] {
				continue
			}
			_ = unix.Setpriority(unix.PRIO_PROCESS, t, nice)
		}
	}
}
