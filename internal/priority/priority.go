// Package priority raises the priority of work of this process, if that is permitted: of one OS thread, or of all of
// them. Priorities are nice values.
package priority

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// high is the nice value of work that must be done in time. It matters on a machine
// whose CPUs are all busy with the target.
const high = -10

// always are the OS threads of RunHigh, by their ids. It is locked while a thread's priority changes.
var always = struct {
	sync.Mutex
	tids map[int]bool
}{tids: map[int]bool{}}

// RunHigh calls f on an OS thread of its own, with a higher priority than others if that
// is permitted. No Priority changes that thread's.
func RunHigh(f func()) {
	onItsOwn(func() {
		tid := unix.Gettid()
		always.Lock()
		always.tids[tid] = true
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, high)
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
	if chosen() || unix.Setpriority(unix.PRIO_PROCESS, 0, hurried) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) // to have less is always permitted
		runtime.UnlockOSThread()
	}
}

// HurryAll gives this whole process, which ends in part of a second, what Hurry gives to one thread. Go's collector and
// what is written do not keep it waiting either.
//
// The calling goroutine keeps its OS thread for good. That thread comes before all ordinary ones for urgentFor, if that
// is permitted: among 200 threads that compute, one with the highest ordinary priority has half of a CPU only. It is
// one thread, so that it never takes more than one CPU from others.
func HurryAll() {
	if chosen() {
		return
	}
	setAll(hurried)
	runtime.LockOSThread()
	tid := unix.Gettid()
	if setPolicy(tid, unix.SCHED_RR, urgent) == nil {
		time.AfterFunc(urgentFor, func() { _ = setPolicy(tid, unix.SCHED_NORMAL, 0) })
	}
}

const (
	urgent    = 1 // the lowest real-time priority: those who stop threads have a higher one
	urgentFor = 250 * time.Millisecond
)

// setPolicy sets how an OS thread is scheduled. Processes and threads that it starts are ordinary ones. Of the nice
// value, it says what setAll has given to the thread.
func setPolicy(tid int, policy, priority uint32) error {
	return unix.SchedSetAttr(tid, &unix.SchedAttr{
		Policy: policy, Priority: priority, Nice: hurried, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
}

// chosen reports whether somebody has chosen a priority for this process.
func chosen() bool {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || now != kernelPriority {
		return true
	}
	a, err := unix.SchedGetAttr(0, 0)
	return err == nil && a.Policy != unix.SCHED_NORMAL
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

// A Priority is that of the OS threads that do some work: see Run.
type Priority struct {
	all    bool // those of this process, not only the one that the work has for itself
	normal int  // nice value
}

// Run calls f, which can raise the priority that it has, if that is permitted. f runs on an OS thread of its own. If it
// is what this process is for (all), f runs in this goroutine, and the priority is that of the whole process: to be
// woken, a goroutine with an OS thread of its own takes a switch to another thread first. In that case f starts no
// process: it would have the same priority.
func Run(all bool, f func(*Priority)) {
	p := &Priority{all: all, normal: high}
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
func (p *Priority) Raise(higher bool) {
	if p.normal <= high {
		return
	}
	nice := p.normal
	if higher {
		nice = high
	}
	if p.all {
		setAll(nice)
	} else {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
	}
}

// kernelPriority minus the nice value is what the system call getpriority(2) returns.
const kernelPriority = 20

// setAll sets the nice value of all OS threads of this process but those of RunHigh. Those that they
// start have it, too.
func setAll(nice int) {
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
