package live

import (
	"errors"
	"fmt"
	"math"

	"clrsnap/internal/procfs"
)

// Reasons why attaching to a process fails. They come wrapped in an *AttachError, whose text says
// what to do.
var (
	ErrNoProcess    = errors.New("no such process")
	ErrZombie       = errors.New("process has ended and waits to be collected by its parent")
	ErrKernelThread = errors.New("a thread of the kernel")
	ErrNotProcess   = errors.New("a thread, not a process")
	ErrArch         = errors.New("unsupported CPU architecture")
	ErrPermission   = errors.New("operation not permitted")
	ErrTraced       = errors.New("already traced")
)

// Errors of later requests.
var (
	// ErrExited: the process has ended. The text names the process.
	ErrExited = procfs.ErrExited
	// ErrNotStopping: the thread did not reach a stop within the bound.
	ErrNotStopping = errors.New("thread does not stop")
	// ErrWatchdog: the tracer was late while the thread was, or could be, stopped, and the
	// watchdog released the thread.
	ErrWatchdog = errors.New("released by the watchdog")
	// ErrTracerLost: another process has killed our tracer. The threads were released; the next
	// request gets another tracer.
	ErrTracerLost = errors.New("the tracer was killed")
	// ErrHeldTooLong: threads were held up to the limit, and go on.
	ErrHeldTooLong = errors.New("the pause was used up")
	// ErrNewThreads: threads kept starting while the others were being stopped.
	ErrNewThreads = errors.New("threads start all the time")
	// ErrNotBlocked: the thread runs or has run meanwhile, or its state is not known.
	ErrNotBlocked = errors.New("thread is not blocked")
	// ErrNoSchedstat: the kernel cannot prove that a thread has not run.
	ErrNoSchedstat = errors.New("the kernel does not count the runs of threads: capture with a stop instead")
	// ErrClosed: the Process has been closed.
	ErrClosed = errors.New("process is closed")
)

// AllProcesses stands for no process in particular.
const AllProcesses = math.MinInt

// AttachError says why a process cannot be attached to, and the remedy.
type AttachError struct {
	PID    int    // or AllProcesses
	Err    error  // a sentinel above
	Detail string // "" where Err is enough
	Remedy string // what to do next
}

func (e *AttachError) Error() string {
	s := fmt.Sprintf("cannot attach to %d: %v", e.PID, e.Err)
	if e.PID == AllProcesses {
		s = fmt.Sprintf("cannot look for processes: %v", e.Err)
	}
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	return s
}

func (e *AttachError) Unwrap() error { return e.Err }
