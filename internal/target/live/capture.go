package live

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// Capture stops one thread, copies the thread and lets it go on. After an error out is not
// usable, except that a *target.ReadError leaves the other pieces.
func (t *Tracer) Capture(req *target.Request, out *target.Capture) error {
	te := t.one
	te.tid, te.pid, te.slowPoll = uintptr(req.TID), uintptr(t.p.pid), req.SlowPoll
	if err := te.copier.prepare(t.p, req, out); err != nil {
		return err
	}
	for again := false; ; again = true {
		outcome, err := t.perform(te, nil)
		if err != nil {
			*out = target.Capture{}
			return &target.ThreadError{TID: req.TID, Err: ErrWatchdog, Detail: err.Error()}
		}
		if t.mayTrace(te, outcome) {
			continue
		}
		err = t.conclude(te, outcome, req, out)
		if !again && errors.Is(err, ErrPermission) && te.errno == unix.EPERM {
			continue // a tracer that has just detached looks the same
		}
		return err
	}
}

// mayTrace finds out whether only our process may trace the target, and not a task of ours: see
// threadTracer.
func (t *Tracer) mayTrace(te *tracee, outcome uint32) bool {
	if outcome != outcomeDone || te.phase != phaseFree || te.errno != unix.EPERM || t.inside || !onlyAncestors() {
		return false
	}
	t.goInside("Yama (kernel.yama.ptrace_scope=1) lets only an ancestor trace")
	return true
}

func onlyAncestors() bool { return procfs.Sysctl(yamaScope) == "1" }

// forsaken reports whether waiting for a seized thread is in vain. There are two cases. The main
// thread has ended while other threads of the process live on. Or our OS thread is the tracer,
// the target is our child, and execve in another thread has replaced the seized thread: the
// kernel then detaches the thread from us without a notification.
func (t *Tracer) forsaken() bool {
	if t.waiting == 0 {
		return false
	}
	if i, err := t.p.Thread(t.waiting); err != nil || i.State == 'Z' || i.State == 'X' {
		return true
	}
	if t.thread == nil || atomic.LoadUint32(&t.thread.sh.step) != stepMissed {
		return false // perhaps not seized yet
	}
	s, err := t.p.taskStatus(t.waiting)
	return err == nil && s.TracerPID == 0
}

// conclude turns the end of a stop into a result.
func (t *Tracer) conclude(te *tracee, outcome uint32, req *target.Request, out *target.Capture) error {
	switch {
	case outcome == outcomeLate:
		return t.lateError(req.TID)
	case outcome == outcomeDied:
		return &target.ThreadError{TID: req.TID, Err: ErrTracerLost}
	case te.died:
		return t.p.threadGone(req.TID)
	}
	switch te.phase {
	case phaseStill:
		out.TID, out.Stopped, out.Proof, out.Pause, out.Waited = req.TID, false, req.Proof, 0, 0
		out.Ready = false
		return nil
	case phaseDone:
		if te.foreign {
			return &target.ThreadError{TID: req.TID, Err: target.ErrThreadExited,
				Detail: "its id belongs to another process now"}
		}
		return t.deliver(te, req, out)
	case phaseFree:
		if te.errno != 0 {
			return t.seizeError(req.TID, te.errno)
		}
		detail := "too little time was left to stop the thread; try again"
		if te.moved {
			detail = "the thread was blocked, and ran just when " + detail
		}
		return &target.ThreadError{TID: req.TID, Err: ErrNotStopping, Detail: detail}
	case phaseWaiting:
		limit := t.p.stopLimit()
		if t.waiting == 0 && !t.each {
			limit = time.Duration(t.sh.allLimit)
		}
		return t.stuckError(req.TID, limit)
	}
	return t.p.threadGone(req.TID)
}

// lateError explains why the watchdog acted. If the tracer hung in PTRACE_SEIZE, no thread was
// stopped.
func (t *Tracer) lateError(tid int) error {
	sh := t.tasks.sh
	if sh.step == stepSeize {
		return &target.ThreadError{TID: tid, Err: ErrNotStopping,
			Detail: "the process executes another program; try again"}
	}
	late := time.Duration(sh.late).Round(10 * time.Microsecond)
	return &target.ThreadError{TID: tid, Err: ErrWatchdog,
		Detail: fmt.Sprintf("after %v: this process was given no processor, or is stopped; try again", late)}
}

func (t *Tracer) deliver(te *tracee, req *target.Request, out *target.Capture) error {
	te.registers(out)
	out.Proof, out.Pause, out.Waited = "", time.Duration(te.pause()), time.Duration(te.began-te.asked)
	return te.copier.deliver(req, out)
}

// registers describes a stopped thread by its registers.
func (t *tracee) registers(out *target.Capture) {
	t.regs.context(&out.Context)
	out.SyscallNr, out.SyscallArgs = t.regs.syscallNr(), [6]uint64{}
	if out.SyscallNr >= 0 {
		out.SyscallArgs = t.regs.syscallArgs()
	} else {
		out.SyscallNr = -1
	}
	out.Stopped, out.Ready = true, false
}

// seizeError explains why attaching to a thread failed.
func (t *Tracer) seizeError(tid int, errno syscall.Errno) error {
	if errno == unix.ESRCH {
		return t.p.threadGone(tid)
	}
	if errno != unix.EPERM {
		return &target.ThreadError{TID: tid, Err: errno, Detail: "PTRACE_SEIZE"}
	}
	// EPERM has many causes, for example that the thread is exiting.
	info, err := t.p.Thread(tid)
	if err != nil || info.State == 'Z' || info.State == 'X' {
		return t.p.threadGone(tid)
	}
	if s, err := t.p.taskStatus(tid); err == nil {
		if err := tracedError(tid, s.TracerPID); err != nil {
			return err
		}
	}
	if info, err = t.p.Thread(tid); err != nil || info.State == 'Z' || info.State == 'X' {
		return t.p.threadGone(tid)
	}
	return deniedError(t.p.Dir())
}

// stuckError describes a thread that did not stop within a limit.
func (t *Tracer) stuckError(tid int, limit time.Duration) error {
	info, err := t.p.Thread(tid)
	if err != nil || info.State == 'Z' || info.State == 'X' {
		return t.p.threadGone(tid)
	}
	e := &target.ThreadError{TID: tid, Err: ErrNotStopping}
	if info.State == 'R' {
		e.Detail = fmt.Sprintf("the thread is ready to run, but most likely got no CPU within %v; "+
			"the thread was not stopped, try again when the machine is less busy", limit)
		return e
	}
	e.Detail = fmt.Sprintf("state %c after %v; the thread was not stopped, try again later", info.State, limit)
	if w, err := t.p.ThreadWait(tid); err == nil && w.Channel != "" {
		e.Detail += " (asleep in the kernel's " + w.Channel + ")"
	}
	return e
}
