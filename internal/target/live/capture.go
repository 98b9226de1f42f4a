package live

import (
	"fmt"
	"syscall"
	"time"

	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// Capture stops one thread, copies it and lets it go on. On an error out holds
// nothing of use, except that a *target.ReadError leaves the other pieces.
func (t *Tracer) Capture(req *Request, out *Capture) error {
	return t.capture(req, out, t.p.stopLimit(), false)
}

// capture leaves the thread stopped with hold, where it returns nil or a read
// error.
func (t *Tracer) capture(req *Request, out *Capture, limit time.Duration, hold bool) error {
	if t.lost {
		return ErrTracerLost
	}
	te := t.one
	te.tid, te.pid = uintptr(req.TID), uintptr(t.p.pid)
	if err := te.copier.prepare(t.p, req, out); err != nil {
		return err
	}
	start := time.Now()
	if te.seize(); te.phase == phaseWaiting {
		te.quick(hold)
	}
	if te.phase == phaseWaiting {
		if te.patient(t.p, start.Add(limit)); te.phase == phaseStopped {
			te.finish(hold)
		}
	}
	return t.conclude(te, req, out, time.Since(start))
}

func (p *Process) stopLimit() time.Duration {
	if p.StopLimit > 0 {
		return p.StopLimit
	}
	return DefaultStopLimit
}

// patient waits with growing pauses. They are short at first because what
// holds a thread up longest, commonly, is a disk.
func (t *tracee) patient(p *Process, deadline time.Time) {
	step := 10 * time.Microsecond
	for round := 1; t.phase == phaseWaiting && time.Now().Before(deadline); round++ {
		ts := unix.NsecToTimespec(int64(step))
		_ = unix.Nanosleep(&ts, nil) // too short is as good
		t.poll()
		step = min(step*2, time.Millisecond)
		if round%16 == 0 && t.phase == phaseWaiting && p.forsaken(int(t.tid)) {
			t.phase = phaseGone
		}
	}
}

// forsaken reports whether waiting for a thread that we seized is in vain: it
// has ended as the main thread of a process that lives on, or execve in another
// thread has taken its place, which unties it from us without a word where the
// target is our child.
func (p *Process) forsaken(tid int) bool {
	if i, err := p.Thread(tid); err != nil || i.State == 'Z' || i.State == 'X' {
		return true
	}
	var buf [2048]byte
	b, err := p.readTask(tid, "status", buf[:])
	return err == nil && parseStatus(b).tracer == 0
}

// conclude turns the end of a stop into a result.
func (t *Tracer) conclude(te *tracee, req *Request, out *Capture, pause time.Duration) error {
	switch te.phase {
	case phaseDone, phaseStopped:
		if te.foreign {
			return &ThreadError{TID: req.TID, Err: ErrThreadExited, Detail: "its id belongs to another process now"}
		}
		return t.deliver(te, req, out, pause)
	case phaseFree:
		return t.seizeError(req.TID, te.errno)
	case phaseWaiting:
		t.lost = true
		return t.stuckError(req.TID, pause)
	case phaseDying:
		te.phase = phaseWaiting
		te.patient(t.p, time.Now().Add(t.p.stopLimit()))
	}
	// It has died. The main thread is left to its parent, which may be
	// ourselves: the end of our OS thread gives it back.
	if te.phase == phaseExited && te.tid != te.pid {
		te.reap()
	} else {
		t.lost = true
	}
	return t.p.threadGone(req.TID)
}

func (t *Tracer) deliver(te *tracee, req *Request, out *Capture, pause time.Duration) error {
	te.regs.context(&out.Context)
	out.SyscallNr, out.SyscallArgs = te.regs.syscallNr(), [6]uint64{}
	if out.SyscallNr >= 0 {
		out.SyscallArgs = te.regs.syscallArgs()
	} else {
		out.SyscallNr = -1
	}
	out.Pause, out.Stopped = pause, true
	return te.copier.deliver(req, out)
}

// seizeError explains why a thread could not be attached to.
func (t *Tracer) seizeError(tid int, errno syscall.Errno) error {
	if errno == unix.ESRCH {
		return t.p.threadGone(tid)
	}
	if errno != unix.EPERM {
		return &ThreadError{TID: tid, Err: errno, Detail: "PTRACE_SEIZE"}
	}
	// EPERM has many meanings, one of them is that the thread is ending.
	info, err := t.p.Thread(tid)
	if err != nil || info.State == 'Z' || info.State == 'X' {
		return t.p.threadGone(tid)
	}
	var buf [2048]byte
	if b, err := t.p.readTask(tid, "status", buf[:]); err == nil {
		if err := tracedError(tid, parseStatus(b).tracer); err != nil {
			return err
		}
	}
	if info, err = t.p.Thread(tid); err != nil || info.State == 'Z' || info.State == 'X' {
		return t.p.threadGone(tid)
	}
	return deniedError(t.p.pid)
}

// stuckError describes a thread that could not be stopped.
func (t *Tracer) stuckError(tid int, waited time.Duration) error {
	info, err := t.p.Thread(tid)
	if err != nil || info.State == 'Z' || info.State == 'X' {
		return t.p.threadGone(tid)
	}
	e := &ThreadError{TID: tid, Err: ErrNotStopping}
	e.Detail = fmt.Sprintf("state %c after %v; it has been left alone, try again later", info.State, waited.Round(time.Millisecond))
	if w, err := t.p.ThreadWait(tid); err == nil && w.Channel != "" {
		e.Detail += " (it sleeps in the kernel's " + w.Channel + ")"
	}
	return e
}

// Hold captures one thread and keeps it stopped while f runs, but not longer
// than limit: then the thread is let go whatever f is doing, and Hold returns
// ErrHeldTooLong once f has returned. While f runs out.Stack.Live reads the
// target. f runs on a goroutine of its own and must not use the Tracer.
func (t *Tracer) Hold(req *Request, out *Capture, limit time.Duration, f func() error) error {
	start := time.Now()
	err := t.capture(req, out, t.p.stopLimit(), true)
	te := t.one
	if te.phase != phaseStopped || t.lost {
		return err
	}
	if err != nil {
		t.let(te)
		return err
	}
	out.Stack.Live = target.NewReader(t.p)
	done := make(chan heldResult, 1)
	go held(f, done)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var r heldResult
	late := false
	select {
	case r = <-done:
	case <-timer.C:
		late = true
	}
	t.let(te)
	out.Pause = time.Since(start)
	if late {
		r = <-done
	}
	out.Stack.Live = nil
	if r.panicked != nil {
		panic(r.panicked)
	}
	if late {
		return &ThreadError{TID: req.TID, Err: ErrHeldTooLong, Detail: limit.String()}
	}
	return r.err
}

type heldResult struct {
	err      error
	panicked any
}

// held reports how f ended, also if it panics or ends the goroutine.
func held(f func() error, done chan<- heldResult) {
	r := heldResult{err: ErrTracerLost}
	defer func() {
		r.panicked = recover()
		done <- r
	}()
	r.err = f()
}

// let releases a held thread.
func (t *Tracer) let(te *tracee) {
	if te.release(); te.phase == phaseDying {
		te.phase = phaseWaiting
		te.patient(t.p, time.Now().Add(t.p.stopLimit()))
		if te.phase == phaseExited && te.tid != te.pid {
			te.reap()
		} else {
			t.lost = true
		}
	}
}
