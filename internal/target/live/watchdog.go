package live

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The watchdog runs the code of this file; the rules of task.go apply.
//
// The tracer announces a deadline for its next sign of life: while a thread is stopped, or may
// be, the deadline is the limit after the last poll that found the thread running. The watchdog
// kills the tracer when the deadline has passed. The kernel then resumes all tracees with their
// stops' signals, because the tracer looks at stops without consuming the signals.

const (
	// tick is the watchdog's longest sleep during a request, in ns: then the watchdog checks
	// whether the tracer lives.
	tick = 10_000_000
	// idleRounds is the number of ticks that the watchdog stays awake without a request, so that
	// in a sequence of captures nobody need wake it each time.
	idleRounds = 10
)

// watch keeps a tracer ready and watches the tracer, until quit.
//
//go:norace
//go:nosplit
func watch(sh *shared) {
	pid, _ := raw(unix.SYS_GETPID, 0, 0, 0)
	sh.watchdog = int32(pid)
	for idle := 0; load(&sh.quit) == 0; {
		if sh.tracer == 0 && !sh.spawn() {
			return // our end tells the client
		}
		prod := load(&sh.prod)
		if sh.ended(load(&sh.leaving) != 0) {
			continue
		}
		now, deadline := clock(), load64(&sh.deadline)
		wait := min(sh.limit, tick)
		switch {
		case deadline != 0 && now >= deadline:
			sh.shoot()
			continue
		case deadline != 0:
			wait = min(wait, deadline-now)
			idle = 0
		case load(&sh.posted) != load(&sh.done):
			idle = 0
		default:
			idle++
		}
		if idle >= idleRounds {
			swap(&sh.asleep, 1)
			if load(&sh.posted) == load(&sh.done) && load(&sh.quit) == 0 {
				futexWait(&sh.prod, prod, 0)
			}
			swap(&sh.asleep, 0)
			idle = 0
			continue
		}
		// A deadline set right after our look is a limit away, or more.
		futexWait(&sh.prod, prod, wait)
	}
	sh.kill()
}

// spawn starts a tracer.
//
//go:norace
//go:nosplit
func (sh *shared) spawn() bool {
	swap(&sh.leaving, 0)
	swap64(&sh.deadline, 0)
	pid := cloneTask(taskFlags, sh.stack, sh.begin, sh.run, sh)
	if pid <= 0 {
		swap(&sh.noTracer, 1)
		return false
	}
	sh.tracer = int32(pid)
	return true
}

// ended collects a tracer that has ended by itself or was killed, and ends its request. With
// wait, ended waits for the tracer's end.
//
//go:norace
//go:nosplit
func (sh *shared) ended(wait bool) bool {
	if !sh.reap(wait) {
		return false
	}
	if load(&sh.leaving) != 0 {
		sh.conclude(outcomeLeft)
	} else {
		sh.conclude(outcomeDied)
	}
	return true
}

// shoot kills a late tracer. The tracer may be late because it has no CPU: for its last
// microseconds it gets our CPU.
//
//go:norace
//go:nosplit
func (sh *shared) shoot() {
	since := load64(&sh.since)
	sh.kill()
	sh.late = clock() - since
	sh.conclude(outcomeLate)
}

//go:norace
//go:nosplit
func (sh *shared) kill() {
	if sh.tracer == 0 {
		return
	}
	pid := uintptr(sh.tracer)
	raw(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0)
	sh.lend(pid)
	sh.reap(true)
}

// lend moves a task to our CPU, with our priority. We sleep next, and the task runs.
//
//go:norace
//go:nosplit
func (sh *shared) lend(pid uintptr) {
	var cpu uint32
	var mask [1024 / 64]uint64
	if _, e := raw(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); e == 0 && cpu < 1024 {
		mask[cpu/64] = 1 << (cpu % 64)
		raw(unix.SYS_SCHED_SETAFFINITY, pid, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	}
	setPriority(pid, priorityWatchdog)
}

// reap collects the tracer. When reap returns true, the kernel has detached all of the tracer's
// tracees.
//
//go:norace
//go:nosplit
func (sh *shared) reap(wait bool) bool {
	if collect(uintptr(sh.tracer), wait) {
		sh.tracer = 0
		return true
	}
	return false
}

// conclude ends the request of an ended tracer. A request that the tracer had not begun stays for
// the next tracer.
//
//go:norace
//go:nosplit
func (sh *shared) conclude(outcome uint32) {
	seq := load(&sh.taken)
	if seq != load(&sh.posted) || seq == load(&sh.done) {
		return
	}
	swap(&sh.outcome, outcome)
	swap(&sh.done, seq)
	futexWake(&sh.done)
}

// rouse wakes the watchdog for a look at once.
//
//go:norace
//go:nosplit
func (sh *shared) rouse() {
	swap(&sh.prod, load(&sh.prod)+1)
	futexWake(&sh.prod)
}
