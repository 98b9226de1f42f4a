package singlestep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// event is how a step ended.
type event uint8

const (
	stepped   event = iota
	signalled       // a signal is about to be delivered, by the next step
	blocked         // the thread is in a system call that does not return
	ended           // the thread has exited
)

// tracer single-steps one thread. Its methods must be called on one locked OS
// thread, because a tracee belongs to a thread, not to a process.
type tracer struct {
	tid       int
	regs      unix.PtraceRegs
	pending   int          // the signal for the next step to deliver
	delivered int          // the signal delivered by the last step
	signals   int          // delivered to the thread
	stops     atomic.Int32 // group stops
}

const (
	eventStop   = 128 // PTRACE_EVENT_STOP
	eventClone  = 3   // PTRACE_EVENT_CLONE
	trapFlag    = 1 << 8
	blockLimit  = 2 * time.Second // in one system call
	seizeLimit  = 5 * time.Second
	optionClone = 1 << eventClone // PTRACE_O_TRACECLONE
)

// errEnded: a thread has ended before it made another thread.
var errEnded = errors.New("it has ended")

func ptrace(request, tid int, addr, data uintptr) error {
	if _, _, e := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0); e != 0 {
		return e
	}
	return nil
}

// seize stops a thread wherever it is and reads its registers.
func seize(tid int, options uintptr) (*tracer, error) {
	t := &tracer{tid: tid}
	if err := ptrace(unix.PTRACE_SEIZE, tid, 0, options); err != nil {
		return nil, fmt.Errorf("PTRACE_SEIZE of thread %d: %w", tid, err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return nil, fmt.Errorf("PTRACE_INTERRUPT of thread %d: %w", tid, err)
	}
	for {
		st, err := t.wait()
		if err != nil {
			return nil, err
		}
		if !st.Stopped() {
			return nil, fmt.Errorf("thread %d ended before it could be stopped", tid)
		}
		switch sig := int(st.StopSignal()); {
		case int(st)>>16 == eventStop && sig == int(unix.SIGTRAP):
			return t, t.getRegs()
		case int(st)>>16 == eventStop:
			err = ptrace(unix.PTRACE_LISTEN, tid, 0, 0)
		default: // a signal on its way: the thread goes on, the interrupt comes next
			err = ptrace(unix.PTRACE_CONT, tid, 0, uintptr(sig))
		}
		if err != nil {
			return nil, err
		}
	}
}

func (t *tracer) getRegs() error {
	return ptrace(unix.PTRACE_GETREGS, t.tid, 0, uintptr(unsafe.Pointer(&t.regs)))
}

func (t *tracer) wait() (unix.WaitStatus, error) {
	var st unix.WaitStatus
	for {
		_, err := unix.Wait4(t.tid, &st, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}

// waitFor waits with growing pauses, because only the tracer's own thread may
// interrupt a tracee that does not come back. It reports false at the limit.
func (t *tracer) waitFor(limit time.Duration) (st unix.WaitStatus, ok bool, err error) {
	deadline := time.Now().Add(limit)
	for pause := time.Duration(0); ; pause = min(pause+10*time.Microsecond, time.Millisecond) {
		got, err := unix.Wait4(t.tid, &st, unix.WALL|unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || got != 0:
			return st, true, err
		case time.Now().After(deadline):
			return st, false, nil
		default:
			ts := unix.NsecToTimespec(int64(pause))
			_ = unix.Nanosleep(&ts, nil) // too short is as good
		}
	}
}

// step executes the instruction at hand, in, and then reads the registers. A
// signal met by the last step is delivered first, exactly once: the step then
// ends before the first instruction of the signal's handler. (Flags are restored
// before.)
func (t *tracer) step(in insn) (event, error) {
	t.delivered = 0
	if in.class == popFlags || in.class == intReturn {
		if done, err := t.restoreFlags(in); err != nil {
			return t.gone(err)
		} else if done {
			return stepped, nil
		}
	}
	t.delivered, t.pending = t.pending, 0
	if t.delivered != 0 {
		t.signals++
	}
	if err := ptrace(unix.PTRACE_SINGLESTEP, t.tid, 0, uintptr(t.delivered)); err != nil {
		return t.gone(err)
	}
	for {
		st, ok, err := t.await(in)
		switch {
		case err != nil:
			return t.gone(err)
		case !ok:
			return t.interrupt()
		case !st.Stopped():
			return ended, nil
		}
		ev, again, err := t.stopped(st, in)
		if err != nil {
			return t.gone(err)
		}
		if !again {
			if err := t.getRegs(); err != nil {
				return t.gone(err)
			}
			return ev, t.checkTrapFlag()
		}
	}
}

func (t *tracer) await(in insn) (unix.WaitStatus, bool, error) {
	if in.class == enter {
		return t.waitFor(blockLimit)
	}
	st, err := t.wait()
	return st, true, err
}

// stopped interprets a stop. again reports that another stop follows.
func (t *tracer) stopped(st unix.WaitStatus, in insn) (ev event, again bool, err error) {
	sig := int(st.StopSignal())
	switch int(st) >> 16 {
	case eventStop:
		if sig == int(unix.SIGTRAP) { // the end of a group stop
			return 0, true, ptrace(unix.PTRACE_SINGLESTEP, t.tid, 0, 0)
		}
		t.stops.Add(1)
		return 0, true, ptrace(unix.PTRACE_LISTEN, t.tid, 0, 0)
	case 0:
		if sig == int(unix.SIGTRAP) && in.class != trap {
			return stepped, false, nil
		}
		t.pending = sig
		return signalled, false, nil
	}
	return 0, true, ptrace(unix.PTRACE_SINGLESTEP, t.tid, 0, 0)
}

// interrupt stops a thread that does not return from a system call. The kernel
// restarts the call when the thread goes on.
func (t *tracer) interrupt() (event, error) {
	if err := unix.PtraceInterrupt(t.tid); err != nil {
		return t.gone(err)
	}
	st, ok, err := t.waitFor(seizeLimit)
	switch {
	case err != nil:
		return t.gone(err)
	case !ok:
		return ended, fmt.Errorf("thread %d cannot be interrupted", t.tid)
	case !st.Stopped():
		return ended, nil
	case int(st)>>16 == 0 && st.StopSignal() != unix.SIGTRAP:
		t.pending = int(st.StopSignal())
	}
	return blocked, t.getRegs()
}

// gone distinguishes the end of a thread from a failure.
func (t *tracer) gone(err error) (event, error) {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ECHILD) {
		return ended, nil
	}
	return ended, err
}

// hideTrapFlag clears the trap flag in the flags that the program has just
// pushed: restoring the flags later would make the program trap without us.
func (t *tracer) hideTrapFlag() error {
	var b [8]byte
	at := uintptr(t.regs.Rsp)
	if _, err := unix.PtracePeekData(t.tid, at, b[:]); err != nil {
		return err
	}
	b[1] &^= trapFlag >> 8
	_, err := unix.PtracePokeData(t.tid, at, b[:])
	return err
}

// restoreFlags does the work of popfq or iretq. After a single step over either
// instruction, the kernel would not know whose the trap flag is
// (arch/x86/kernel/step.c): the kernel would from then on take the flag for the
// program's own; the signal frames, and with them the contexts that the runtime saves
// and restores, would have the flag set; and the program would die of the flag after
// we have detached. Reports false for an instruction left to a step. (PTRACE_SETREGS
// keeps the identification flag.)
func (t *tracer) restoreFlags(in insn) (bool, error) {
	var b [5 * 8]byte
	words := b[:8]
	if in.class == intReturn {
		words = b[:]
	}
	if n, err := unix.PtracePeekData(t.tid, uintptr(t.regs.Rsp), words); err != nil || n < len(words) {
		return false, nil // the instruction faults
	}
	var w [5]uint64
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	regs := t.regs
	if in.class == popFlags {
		regs.Eflags = w[0]
		regs.Rip += uint64(in.length)
		regs.Rsp += 8
	} else {
		if uint16(w[1]) != uint16(regs.Cs) || uint16(w[4]) != uint16(regs.Ss) {
			return false, nil
		}
		regs.Rip, regs.Eflags, regs.Rsp = w[0], w[2], w[3]
	}
	regs.Eflags &^= trapFlag
	if err := unix.PtraceSetRegs(t.tid, &regs); err != nil {
		return false, err
	}
	return true, t.getRegs()
}

// checkTrapFlag: the kernel shows a trap flag that it takes for the program's own,
// not our trap flag.
func (t *tracer) checkTrapFlag() error {
	if t.regs.Eflags&trapFlag == 0 {
		return nil
	}
	return fmt.Errorf("thread %d has the trap flag set at %#x: it would die of it later", t.tid, t.regs.Rip)
}

// detach lets the thread go on, with the signal not yet delivered.
func (t *tracer) detach() error {
	err := ptrace(unix.PTRACE_DETACH, t.tid, 0, uintptr(t.pending))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// followClone lets a stopped thread run until it makes a new thread, and
// returns the new thread, stopped before its first instruction. The old thread
// is let go.
func (t *tracer) followClone(limit time.Duration) (*tracer, error) {
	deadline := time.Now().Add(limit)
	sig := 0
	for {
		if err := ptrace(unix.PTRACE_CONT, t.tid, 0, uintptr(sig)); err != nil {
			return nil, err
		}
		st, ok, err := t.waitFor(time.Until(deadline))
		switch {
		case err != nil:
			return nil, err
		case !ok:
			_, err := t.interrupt()
			return nil, errors.Join(err, t.detach(), fmt.Errorf("thread %d made no thread within %v", t.tid, limit))
		case !st.Stopped():
			return nil, fmt.Errorf("thread %d: %w", t.tid, errEnded)
		case int(st)>>16 == eventClone:
			return t.child()
		case int(st)>>16 == 0:
			sig = int(st.StopSignal())
		default:
			sig = 0
		}
	}
}

func (t *tracer) child() (*tracer, error) {
	tid, err := unix.PtraceGetEventMsg(t.tid)
	if err != nil {
		return nil, err
	}
	c := &tracer{tid: int(tid)}
	if _, err := c.wait(); err != nil {
		return nil, err
	}
	if err := t.detach(); err != nil {
		return nil, err
	}
	// The new thread has inherited the option to follow its own threads.
	if err := ptrace(unix.PTRACE_SETOPTIONS, c.tid, 0, 0); err != nil {
		return nil, err
	}
	return c, c.getRegs()
}
