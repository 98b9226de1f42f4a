// Package priority raises the priority of work of this process, if that is permitted: of one OS
// thread, or of all OS threads. Priorities are nice values.
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

// high is the nice value of work that must be done in time. The value matters on a machine whose
// CPUs are all busy with the target.
const high = -10

// always has the OS threads of RunHigh, by thread id. The lock is held while a thread's priority
// changes.
var always = struct {
	sync.Mutex
	tids map[int]bool
}{tids: map[int]bool{}}

// RunHigh calls f on a separate OS thread, with a higher priority than others if that is permitted.
// No Priority changes the priority of the thread.
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

// hurried is the nice value of work that takes part of a second. On a machine with many busy
// threads for each CPU, the next threads would keep the work waiting for a hundred times as long.
const hurried = -20

// Hurry gives the calling goroutine an exclusive OS thread, with a higher priority than others if
// that is permitted, until end is called. A priority that somebody has chosen for this process
// stays.
func Hurry() (end func()) {
	runtime.LockOSThread()
	if chosen() || unix.Setpriority(unix.PRIO_PROCESS, 0, hurried) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) // a lower priority is always permitted
		runtime.UnlockOSThread()
	}
}

// Hasten gives the whole process the priority of Hurry, until end is called. Go's collector gets the same priority:
// memory does not grow while the collector waits for a CPU.
func Hasten() (end func()) {
	if chosen() {
		return func() {}
	}
	setAll(hurried)
	return func() { setAll(0) }
}

// HurryAll gives the whole process what Hurry gives to one thread. The process must end in part of
// a second. Go's collector and the output do not keep the process waiting either.
//
// The calling goroutine keeps its OS thread for good. For urgentFor the thread comes before all
// ordinary threads, if permitted: among 200 threads that compute, a thread with the highest
// ordinary priority has only half of a CPU. Only one thread is urgent, so that others lose at most
// one CPU. begun: the nice value is raised already. briefly: the process may take long, and is ordinary after
// brieflyFor.
func HurryAll(begun, briefly bool) {
	if !begun && chosen() {
		return
	}
	setAll(hurried)
	runtime.LockOSThread()
	tid := unix.Gettid()
	var mu sync.Mutex
	isOrdinary := setPolicy(tid, unix.SCHED_RR, urgent) != nil
	ordinary := func() {
		mu.Lock()
		defer mu.Unlock()
		if !isOrdinary {
			_ = setPolicy(tid, unix.SCHED_NORMAL, 0)
		}
		isOrdinary = true
	}
	relax = func() {
		ordinary()
		setAll(0)
	}
	time.AfterFunc(urgentFor, ordinary)
	if briefly {
		time.AfterFunc(brieflyFor, relax)
	}
}

// Calm gives the whole process the ordinary nice value.
func Calm() {
	setAll(0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) // also without /proc
}

// relax ends HurryAll.
var relax = func() {}

// Relax ends HurryAll, for a process that goes on for longer, or that is about to start another process.
func Relax() {
	relax()
	relax = func() {}
}

const (
	urgent    = 1 // the lowest real-time priority: the tracer that stops threads has a higher priority
	urgentFor = 250 * time.Millisecond

	brieflyFor = time.Second
)

// setPolicy sets the scheduling of an OS thread. Processes and threads started by the thread are
// ordinary. The nice value repeats the value from setAll.
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

// onItsOwn calls f on a separate OS thread.
func onItsOwn(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with us
		f()
	}()
	<-done
}

// A Priority is the priority of the OS threads that do some work: see Run.
type Priority struct {
	all    bool // all threads of this process, not only the exclusive thread of the work
	normal int  // nice value
}

// Run calls f, and f can raise its priority if that is permitted. f runs on a separate OS thread.
// If f is the purpose of this process (all), f runs in the calling goroutine, and the priority is
// the whole process's: to wake a goroutine with a separate OS thread takes a switch to another
// thread first. In this case f must start no process: a child would have the same priority.
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

// Raise makes the priority higher than the priority of other processes, or restores the priority
// from before.
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

// kernelPriority minus the nice value is the result of the system call getpriority(2).
const kernelPriority = 20

// setAll sets the nice value of all OS threads of this process except the threads of RunHigh.
// Threads started later inherit the nice value.
func setAll(nice int) {
	self, err := procfs.Self()
	if err != nil {
		return
	}
	defer self.Close()
	always.Lock()
	defer always.Unlock()
	for range 2 { // once more for threads that were being started
		threads, _ := self.Tasks()
		if !slices.Contains(threads, os.Getpid()) {
			return // this /proc belongs to another PID namespace: here the numbers belong to other threads
		}
		for _, t := range threads {
			if always.tids[t] {
				continue
			}
			_ = unix.Setpriority(unix.PRIO_PROCESS, t, nice)
		}
	}
}
