package live

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tracer and the watchdog are tasks of the kernel. They share our memory and our files, but
// are not threads of our process, and the Go runtime does not know them:
//
//	this process ── watchdog ── tracer ··(ptrace)·· threads of the target
//
// So the tracer can be killed alone, which is the only way to detach its tracees without its
// help. And neither our scheduler, nor our garbage collector, nor a stop of our process (SIGSTOP,
// Ctrl-Z) delays the tracer while a thread is stopped. Each of the two tasks dies with its
// parent.
//
// The tasks' code is written in Go under the rules of stop.go. There is no goroutine, but a stack
// check, a write barrier, a panic or a call into the Go runtime would need a goroutine. So the
// tasks use only nosplit and norace functions and raw system calls, store numbers but never
// pointers, and avoid sync/atomic, which calls into the race detector where enabled. TestTaskCode
// checks the rules in the machine code.

// shared is the memory through which the tasks work together. It is one allocation that never
// moves; the tasks write numbers only.
type shared struct {
	// Set before the tasks start.
	parent uintptr // our process id
	stack  uintptr // top of the tracer's stack
	begin  uintptr // code of beginTracer and serve
	run    uintptr
	limit  int64 // ns: the longest stop of a thread
	inside bool  // run by a thread of ours, see fallback.go

	// The request with number posted; see perform.
	one                 *tracee
	many                []*tracee // instead of one, if not empty
	stopLimit, allLimit int64     // ns
	dir                 uintptr   // /proc/<pid> of the target
	threads             int       // the target's threads at the instant of many; 0: not known
	rounds              int       // over many
	rest, nextProofs    int64     // until the next round, and when to check proofs again

	// If each: the threads in many are let go as they stop; see each.go.
	each           bool
	asked          int   // threads that have been asked to stop and have not stopped yet
	latest, looked int64 // times of the latest stop or request for a stop, and of the latest look

	// How long the threads in many are held, from the request for their stops, in ns; 0: not
	// held.
	hold  int64
	begun int64  // when the stops were requested
	held  uint32 // futex: all stand still, and wait for the client
	letGo uint32 // futex: why the hold has ended; see holdAll

	posted, taken, done uint32 // numbers of requests; futexes of tracer and client
	outcome             uint32 // of request done
	giveUp              uint32 // the client knows that waiting is in vain
	leaving             uint32 // the tracer ends, because it could not detach a thread otherwise

	deadline int64 // when the watchdog kills the tracer, CLOCK_MONOTONIC; 0: never
	since    int64 // begin of the time in which a thread may stand still
	late     int64 // ns from since until the watchdog had released the thread

	watchdog, tracer int32  // process ids
	prod             uint32 // futex of the watchdog
	asleep           uint32 // the watchdog sleeps until prodded
	quit             uint32
	noTracer         uint32 // the kernel refused the watchdog's clone of a tracer

	step    uint32 // the tracer's step
	breaks  uint32 // test: the steps at which the tracer waits, as bits
	arrived uint32 // test: the step at which the tracer waits now
	resume  uint32 // test: futex
	linger  int64  // test: ns until the tracer goes on by itself

	line [maxProof]byte // of schedstat, as read
	stat unix.Stat_t
}

// Outcomes of a request.
const (
	outcomeDone uint32 = iota // phases of the tracees say what happened
	outcomeLeft               // the same, and the tracer has ended
	outcomeLate               // the watchdog killed the tracer
	outcomeDied               // another process killed the tracer
)

// taskFlags share memory, files, and root and working directory, so a task does not keep open or
// busy what we close. The lowest byte, the signal at the task's end, is 0: a wait sees the task
// only with __WALL or __WCLONE, so programs that collect any child are not disturbed.
// Thread-local memory is not shared: see cloneTask.
const taskFlags = unix.CLONE_VM | unix.CLONE_FILES | unix.CLONE_FS | unix.CLONE_SETTLS

func cloneTask(flags, stack, begin, run uintptr, sh *shared) (pid int)

// entry is the address of a function's code.
func entry(f func(*shared)) uintptr { return **(**uintptr)(unsafe.Pointer(&f)) }

// load and swap are atomic; swap is a full barrier as well.
//
//go:noescape
func load(p *uint32) uint32

//go:noescape
func load64(p *int64) int64

//go:noescape
func swap(p *uint32, v uint32) uint32

//go:noescape
func swap64(p *int64, v int64) int64

// beginWatchdog and beginTracer run first in a task. All signals are blocked, as in the thread
// that made the clone, so only SIGSTOP and SIGKILL can stop or end a task. A new session protects
// the tasks from signals to a process group.
//
//go:norace
//go:nosplit
func beginWatchdog(sh *shared) {
	beginTask(sh.parent, priorityWatchdog)
	raw(unix.SYS_SETSID, 0, 0, 0)
	name := [16]byte{'c', 'l', 'r', 's', 'n', 'a', 'p', '-', 'w', 'a', 't', 'c', 'h'}
	raw(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0)
}

//go:norace
//go:nosplit
func beginTracer(sh *shared) {
	beginTask(uintptr(sh.watchdog), priorityTracer)
	name := [16]byte{'c', 'l', 'r', 's', 'n', 'a', 'p', '-', 't', 'r', 'a', 'c', 'e'}
	raw(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0)
}

//go:norace
//go:nosplit
func beginTask(parent uintptr, priority int32) {
	raw(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	if now, _ := raw(unix.SYS_GETPPID, 0, 0, 0); now != parent {
		raw(unix.SYS_EXIT_GROUP, 0, 0, 0) // the parent has died already
	}
	// A small timer slack, for the sleeps while a thread is about to stop.
	raw(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0)
	setPriority(0, priority)
}

// Real-time priorities, as far as permitted: a stopped thread waits for the tracer, and on a
// machine with busy CPUs the wait would be most of the pause. Both tasks sleep during waits
// longer than microseconds. Priority 1 belongs to package priority.
const (
	priorityTracer   = 2
	priorityWatchdog = 3
)

//go:norace
//go:nosplit
func setPriority(pid uintptr, priority int32) {
	const fifo = 1 // SCHED_FIFO
	raw(unix.SYS_SCHED_SETSCHEDULER, pid, fifo, uintptr(unsafe.Pointer(&priority)))
}

//go:norace
//go:nosplit
func raw(nr, a, b, c uintptr) (uintptr, syscall.Errno) { return raw6(nr, a, b, c, 0, 0, 0) }

// raw6 is syscall.RawSyscall6 with a smaller frame. The linker allows nosplit functions 792 bytes
// of stack in all, also in code instrumented for fuzzing, with its larger frames.
func raw6(nr, a, b, c, d, e, f uintptr) (r uintptr, errno syscall.Errno)

// clock is CLOCK_MONOTONIC in ns.
//
//go:norace
//go:nosplit
func clock() int64 {
	var ts unix.Timespec
	raw(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Sec*1e9 + ts.Nsec
}

const (
	futexWaitPrivate = 0 | 128
	futexWakePrivate = 1 | 128
)

// futexWait sleeps while *p is v, for at most ns (0: without end). It may return at any time.
//
//go:norace
//go:nosplit
func futexWait(p *uint32, v uint32, ns int64) {
	ts := unix.Timespec{Sec: ns / 1e9, Nsec: ns % 1e9}
	limit := uintptr(unsafe.Pointer(&ts))
	if ns == 0 {
		limit = 0
	}
	raw6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexWaitPrivate, uintptr(v), limit, 0, 0)
}

//go:norace
//go:nosplit
func futexWake(p *uint32) { raw(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p)), futexWakePrivate, 1) }

//go:norace
//go:nosplit
func nap(ns int64) {
	ts := unix.Timespec{Nsec: ns}
	raw(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
