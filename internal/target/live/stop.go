package live

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The code of this file runs while a thread of the target stands still. The functions are
// nosplit, use raw system calls and allocate nothing. They run in the tracer, which the Go
// runtime does not know (task.go), or in a thread of ours with Go's preemption signal blocked
// (fallback.go). So there is no point at which the scheduler, or a garbage collection that stops
// our world, could take the CPU from us. The functions are norace because the race detector would
// call into the runtime.

// phase is the progress of a stop.
type phase uint8

const (
	phaseFree    phase = iota // not attached: SEIZE failed with errno
	phaseWaiting              // seized, interrupted, not stopped yet
	phaseStopped              // in PTRACE_EVENT_STOP
	phaseDone                 // copied and released
	phaseDying                // killed during the stop: will exit
	phaseExited               // a zombie that we have to collect
	phaseGone                 // no tracee of ours has the id any more
	phaseStill                // not attached: blocked, and has not run since the proof
)

// tracee is one thread on its way through a stop.
type tracee struct {
	tid, pid uintptr
	wanted   bool // in a batch: to be captured
	phase    phase
	errno    syscall.Errno
	foreign  bool // the thread id belongs to another process by now
	died     bool // during the stop
	signals  int  // met and passed on while waiting
	moved    bool // once phaseStill, but has run
	taken    bool // in a batch: copied
	regs     regs
	copier   copier

	schedstat uintptr // file, or noSchedstat: open the file at path
	path      [32]byte
	proof     [maxProof]byte
	proofLen  int

	info waitInfo

	// CLOCK_MONOTONIC: the last moment with the thread known not to be stopped, and the first
	// moment after the release. Earlier stops for a signal are added up in extra.
	slowPoll            bool
	asked               int64 // when the stop was asked for
	began, ended, extra int64
}

const noSchedstat = ^uintptr(0)

// pause is an upper bound on how long the thread stood still, in ns.
func (t *tracee) pause() int64 { return t.ended - t.began + t.extra }

// waitInfo is the part of siginfo_t that waitid fills.
type waitInfo struct {
	signo, errno, code, _ int32
	pid, uid, status, _   int32
	_                     [96]byte
}

// Values of si_code for SIGCHLD (include/uapi/asm-generic/siginfo.h).
const (
	cldExited = 1
	cldKilled = 2
	cldDumped = 3
)

//go:norace
//go:nosplit
func ptrace(request, tid, data uintptr) syscall.Errno {
	_, e := raw6(unix.SYS_PTRACE, request, tid, 0, data, 0, 0)
	return e
}

// seize attaches without stopping. It may sleep while the target executes another program.
//
//go:norace
//go:nosplit
func (t *tracee) seize(sh *shared) {
	sh.at(stepSeize)
	t.seized(ptrace(unix.PTRACE_SEIZE, t.tid, 0))
	sh.at(stepSeized)
}

//go:norace
//go:nosplit
func (t *tracee) seized(errno syscall.Errno) {
	t.signals, t.extra, t.asked, t.foreign, t.died, t.taken = 0, 0, 0, false, false, false
	t.errno, t.phase = errno, phaseFree
	if errno == 0 {
		t.phase = phaseWaiting
	}
}

// interrupt asks for the stop. While the thread gets there, interrupt checks that the thread is
// the right one. A seized thread's id cannot go to another thread. So tgkill with signal 0, which
// compares thread and process and sends nothing, gives an answer that stays true.
//
//go:norace
//go:nosplit
func (t *tracee) interrupt(sh *shared) {
	ptrace(unix.PTRACE_INTERRUPT, t.tid, 0)
	sh.at(stepInterrupt)
	_, e := raw(unix.SYS_TGKILL, t.pid, t.tid, 0)
	t.foreign = e == unix.ESRCH
	sh.at(stepLook)
}

// poll checks once whether the thread has stopped.
//
// The wait uses WNOWAIT, so the stop's signal stays with the thread. If the wait consumed the
// signal, and we were killed before the PTRACE_CONT that gives the signal back, the signal would
// be lost: ptrace_stop in kernel/signal.c continues with the signal that the wait has left.
//
//go:norace
//go:nosplit
func (t *tracee) poll(sh *shared) {
	switch e := t.look(); {
	case e == unix.ECHILD:
		t.phase = phaseGone
	case e != 0 || t.info.signo == 0:
		sh.at(stepMissed)
		t.replaced(sh)
	case t.info.code == cldExited || t.info.code == cldKilled || t.info.code == cldDumped:
		t.phase = phaseExited
	case t.info.status>>8 == unix.PTRACE_EVENT_STOP:
		// Our interrupt, or a group stop (SIGSTOP), which outlasts a detach: either way the
		// thread stands still at a defined place.
		t.phase = phaseStopped
	case t.info.status>>8 == 0:
		// The thread is about to get a signal. We give it the signal, and it stops for us
		// afterwards.
		t.signals++
		sh.at(stepSignal)
		t.pass(sh, uintptr(t.info.status&0xff))
	default: // an event that was not requested
		t.pass(sh, 0)
	}
}

// replaced notes that execve in another thread has replaced the main thread that we wait for. The
// kernel then detaches the main thread from us without a notification, and where the process is
// our child, a wait does not show the change. Asking once more for the stop shows the change, and
// has no further effect.
//
//go:norace
//go:nosplit
func (t *tracee) replaced(sh *shared) {
	if sh.inside && t.tid == t.pid && ptrace(unix.PTRACE_INTERRUPT, t.tid, 0) == unix.ESRCH {
		t.phase = phaseGone
	}
}

// pass lets a thread go on that has not stopped for us.
//
//go:norace
//go:nosplit
func (t *tracee) pass(sh *shared, signal uintptr) {
	ptrace(unix.PTRACE_CONT, t.tid, signal)
	sh.at(stepContinue)
	if t.died {
		return
	}
	now := clock()
	t.extra += now - t.began
	t.began = now
	if len(sh.many) == 0 {
		sh.expect(now, sh.limit)
	}
}

//go:norace
//go:nosplit
func (t *tracee) look() syscall.Errno {
	const options = unix.WEXITED | unix.WSTOPPED | unix.WNOHANG | unix.WALL | unix.WNOWAIT
	t.info.signo = 0
	_, e := raw6(unix.SYS_WAITID, unix.P_PID, t.tid, uintptr(unsafe.Pointer(&t.info)), options, 0, 0)
	return e
}

// A thread with a CPU stops within microseconds: for so long the wait keeps our CPU and spins.
// Any other thread needs a CPU first, perhaps our own, so the wait then sleeps between two polls.
// The sleep is a raw system call, because the Go scheduler would need longer to give us a CPU
// again than the thread needs to stop.
//
// Each sleep is longer than the last, because waking up costs tens of microseconds in a virtual
// machine. Until we see the stop, the thread stands still for a sixth of its waiting time, on
// average.
const (
	spins   = 80   // polls, of half a microsecond each
	naps    = 14   // sleeps, 3 ms in all, before the wait counts as long
	napTime = 5000 // ns of the first

	slowSpins   = 8
	slowNaps    = 7 // also 3 ms
	slowNapTime = 100_000
)

//go:norace
//go:nosplit
func (t *tracee) spin(sh *shared) {
	looks, sleeps, nanos := spins, naps, int64(napTime)
	if t.slowPoll {
		looks, sleeps, nanos = slowSpins, slowNaps, slowNapTime
	}
	for i := 0; i < looks && t.phase == phaseWaiting; i++ {
		t.poll(sh)
	}
	for i := 0; i < sleeps && t.phase == phaseWaiting; i++ {
		nap(nanos)
		nanos += nanos / 2
		t.lookAgain(sh)
	}
}

// Pauses between the polls of a long wait, ns.
const firstPause, lastPause = 250_000, 1_000_000

//go:norace
//go:nosplit
func (t *tracee) patient(sh *shared, deadline int64) {
	for step := int64(firstPause); t.phase == phaseWaiting && clock() < deadline; step = min(2*step, lastPause) {
		nap(step)
		t.lookAgain(sh)
	}
}

// lookAgain polls after a sleep, and records the time of a look that found the thread not
// stopped.
//
//go:norace
//go:nosplit
func (t *tracee) lookAgain(sh *shared) {
	now, signals := clock(), t.signals
	if t.poll(sh); t.phase == phaseWaiting && t.signals == signals {
		t.began = now
		sh.expect(now, sh.limit)
		if load(&sh.giveUp) != 0 {
			t.phase = phaseGone
		}
	}
}

// finish copies and releases a stopped thread.
//
//go:norace
//go:nosplit
func (t *tracee) finish(sh *shared) {
	t.take(sh)
	t.release(sh)
}

// take copies the requested pieces of the stopped thread.
//
//go:norace
//go:nosplit
func (t *tracee) take(sh *shared) {
	if t.phase != phaseStopped || t.foreign {
		return
	}
	sh.at(stepStopped)
	if t.regs.get(t.tid) != 0 {
		t.phase = phaseDying // except us, only SIGKILL ends a stop
		return
	}
	sh.at(stepRegs)
	t.copier.copy(t.tid, t.regs.sp())
	sh.at(stepCopied)
}

// release lets the stopped thread go on.
//
//go:norace
//go:nosplit
func (t *tracee) release(sh *shared) {
	if t.phase != phaseStopped {
		return
	}
	t.phase = phaseDone
	if ptrace(unix.PTRACE_DETACH, t.tid, 0) != 0 {
		t.phase = phaseDying
	}
	t.ended = clock()
}

// collect collects a zombie, either a thread that died while we traced it or a child of ours, and
// reports whether no zombie is left to collect. It tries once, or waits.
//
//go:norace
//go:nosplit
func collect(tid uintptr, wait bool) bool {
	options := uintptr(unix.WEXITED | unix.WALL)
	if !wait {
		options |= unix.WNOHANG
	}
	for {
		var info waitInfo
		_, e := raw6(unix.SYS_WAITID, unix.P_PID, tid, uintptr(unsafe.Pointer(&info)), options, 0, 0)
		if e != unix.EINTR {
			return e != 0 || info.signo != 0
		}
	}
}

// sigset is the kernel's set of signals.
type sigset uint64

// quiet is every signal except the signals that our own instructions can raise: blocked, those
// signals would kill us.
const quiet = ^sigset(1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) |
	1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGABRT-1))

//go:norace
//go:nosplit
func setMask(set sigset) (old sigset) {
	const setmask = 2 // SIG_SETMASK
	raw6(unix.SYS_RT_SIGPROCMASK, setmask, uintptr(unsafe.Pointer(&set)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	return old
}
