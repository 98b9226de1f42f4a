package live

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is what runs while a thread of the target stands still. Its
// functions are nosplit, use raw system calls and allocate nothing, and the
// tracing OS thread has blocked the signal that Go preempts with (Tracer.run):
// with no stack check and
// no such signal there is no point at which the scheduler, or a garbage
// collection that stops our world, could take the processor from us. They are
// norace because the race detector would call into the runtime.

// phase is how far a stop has come.
type phase uint8

const (
	phaseFree    phase = iota // not attached: SEIZE failed with errno
	phaseWaiting              // seized, interrupted, not there yet
	phaseStopped              // in PTRACE_EVENT_STOP
	phaseDone                 // copied and let go
	phaseDying                // killed while it was stopped: will exit
	phaseExited               // a zombie that we have to collect
	phaseGone                 // no tracee of ours has this id any more
)

// tracee is one thread on its way through a stop.
type tracee struct {
	tid, pid uintptr
	phase    phase
	errno    syscall.Errno
	foreign  bool // the thread id belongs to another process by now
	signals  int  // met and passed on while waiting
	regs     regs
	copier   copier
	info     waitInfo
}

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
	_, _, e := syscall.RawSyscall6(unix.SYS_PTRACE, request, tid, 0, data, 0, 0)
	return e
}

// seize attaches without stopping. It may sleep, while the target executes
// another program, so it tells the Go scheduler that it might.
func (t *tracee) seize() {
	t.signals, t.foreign = 0, false
	_, _, t.errno = syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, t.tid, 0, 0, 0, 0)
	t.phase = phaseFree
	if t.errno == 0 {
		t.phase = phaseWaiting
	}
}

// interrupt asks for the stop. The time that the thread needs to get there
// serves to make sure that it is the right one: from the moment it is seized
// its id cannot go to another thread, so tgkill with signal 0, which compares
// thread and process, and sends nothing, gives an answer that stays true.
//
//go:norace
//go:nosplit
func (t *tracee) interrupt() {
	ptrace(unix.PTRACE_INTERRUPT, t.tid, 0)
	_, _, e := syscall.RawSyscall6(unix.SYS_TGKILL, t.pid, t.tid, 0, 0, 0, 0)
	t.foreign = e == unix.ESRCH
}

// poll looks once whether the thread has stopped.
//
// It looks with WNOWAIT, which leaves the stop's signal with the thread. Were
// it consumed, and we killed before the PTRACE_CONT that gives it back, it would
// be lost: ptrace_stop in kernel/signal.c continues with what the wait has left.
//
//go:norace
//go:nosplit
func (t *tracee) poll() {
	switch e := t.look(); {
	case e == unix.ECHILD:
		t.phase = phaseGone
	case e != 0 || t.info.signo == 0:
	case t.info.code == cldExited || t.info.code == cldKilled || t.info.code == cldDumped:
		t.phase = phaseExited
	case t.info.status>>8 == unix.PTRACE_EVENT_STOP:
		// Our interrupt, or a group stop (SIGSTOP), which a detach leaves in
		// force: either way the thread stands still at a defined place.
		t.phase = phaseStopped
	case t.info.status>>8 == 0:
		// About to get a signal: it gets it, and stops for us afterwards.
		t.signals++
		ptrace(unix.PTRACE_CONT, t.tid, uintptr(t.info.status&0xff))
	default: // an event that nobody asked for
		ptrace(unix.PTRACE_CONT, t.tid, 0)
	}
}

//go:norace
//go:nosplit
func (t *tracee) look() syscall.Errno {
	const options = unix.WEXITED | unix.WSTOPPED | unix.WNOHANG | unix.WALL | unix.WNOWAIT
	t.info.signo = 0
	_, _, e := syscall.RawSyscall6(unix.SYS_WAITID, unix.P_PID, t.tid, uintptr(unsafe.Pointer(&t.info)), options, 0, 0)
	return e
}

// A thread stops within microseconds if it has a processor: so long the wait keeps the
// processor. Any other needs a processor itself, perhaps the very one that we
// are on, so the wait then sleeps between two looks: raw, because the Go
// scheduler would need longer to give us ours back than the thread needs to stop.
const (
	spins   = 80   // looks, of half a microsecond each
	naps    = 40   // sleeps, before the wait counts as long
	napTime = 5000 // ns of one
)

//go:norace
//go:nosplit
func (t *tracee) spin() {
	for i := 0; i < spins && t.phase == phaseWaiting; i++ {
		t.poll()
	}
	for i := 0; i < naps && t.phase == phaseWaiting; i++ {
		ts := unix.Timespec{Nsec: napTime}
		syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
		t.poll()
	}
}

// take copies what was asked for from the stopped thread.
//
//go:norace
//go:nosplit
func (t *tracee) take() {
	if t.foreign {
		return
	}
	if t.regs.get(t.tid) != 0 {
		t.phase = phaseDying // only SIGKILL ends a stop that we have not ended
		return
	}
	t.copier.copy(t.tid, t.regs.sp())
}

// release lets the stopped thread go on.
//
//go:norace
//go:nosplit
func (t *tracee) release() {
	t.phase = phaseDone
	if ptrace(unix.PTRACE_DETACH, t.tid, 0) != 0 {
		t.phase = phaseDying
	}
}

// quick is the usual case from end to end.
//
//go:norace
//go:nosplit
func (t *tracee) quick(hold bool) {
	t.interrupt()
	t.spin()
	if t.phase == phaseStopped {
		t.finish(hold)
	}
}

//go:norace
//go:nosplit
func (t *tracee) finish(hold bool) {
	t.take()
	if t.phase == phaseStopped && !(hold && !t.foreign) {
		t.release()
	}
}

// reap collects the zombie of a thread that died while we traced it.
func (t *tracee) reap() {
	_, _, _ = syscall.Syscall6(unix.SYS_WAITID, unix.P_PID, t.tid, 0, unix.WEXITED|unix.WNOHANG|unix.WALL, 0, 0)
}

// sigset is the kernel's set of signals.
type sigset uint64

// quiet is every signal but those that our own instructions can raise: blocked,
// they would kill us.
const quiet = ^sigset(1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) |
	1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGABRT-1))

//go:norace
//go:nosplit
func setMask(set sigset) (old sigset) {
	const setmask = 2 // SIG_SETMASK
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, setmask, uintptr(unsafe.Pointer(&set)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	return old
}
