package inject

import (
	"errors"
	"fmt"
)

// Why the agent cannot be loaded. The errors come wrapped in an *Error, whose text has the
// remedy. For processes that do not exist or may not be touched, internal/target/live has the
// errors; for programs without .NET, internal/locate.
var (
	ErrAheadOfTime    = errors.New("the program is compiled ahead of time (native AOT)")
	ErrDiagnosticsOff = errors.New("the runtime's diagnostics are switched off")
	ErrNoConnection   = errors.New("the runtime cannot be reached")
	ErrProfilerOff    = errors.New("the runtime may not load profilers")
	ErrOtherProfiler  = errors.New("another profiler is loaded")
	ErrTooEarly       = errors.New("the runtime has not started yet")
	ErrNoPlace        = errors.New("no directory of the process can take the agent's library")
	ErrNotLoaded      = errors.New("the runtime cannot load the agent's library")
	ErrNoAgent        = errors.New("the agent does not connect")
	ErrStopped        = errors.New("the process is stopped")
	ErrNoMemory       = errors.New("the memory of its control group is nearly used up")
	ErrNoAnswer       = errors.New("the runtime does not answer")
)

// Error says why the agent cannot be loaded into a process, and the remedy.
type Error struct {
	PID    int    // 0: a process that was yet to be started
	Err    error  // a sentinel above, or the runtime's refusal
	Detail string // "" where Err is enough
	Remedy string // what to do next
}

func (e *Error) Error() string {
	s := "cannot load the agent into the program"
	if e.PID != 0 {
		s = fmt.Sprintf("cannot load the agent into process %d", e.PID)
	}
	s += ": " + e.Reason()
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	return s
}

// Reason is the reason, without the process and the remedy.
func (e *Error) Reason() string {
	if e.Detail == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + " (" + e.Detail + ")"
}

func (e *Error) Unwrap() error { return e.Err }
