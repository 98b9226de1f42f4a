package inject

import (
	"errors"
	"fmt"
)

// Why the agent cannot be loaded. They come wrapped in an *Error, whose text says what
// to do. For processes that do not exist or may not be touched there are the errors of
// internal/target/live, for programs without .NET those of internal/locate.
var (
	ErrAheadOfTime    = errors.New("it is compiled ahead of time (native AOT)")
	ErrDiagnosticsOff = errors.New("its runtime's diagnostics are switched off")
	ErrNoConnection   = errors.New("its runtime cannot be reached")
	ErrProfilerOff    = errors.New("its runtime may not load profilers")
	ErrOtherProfiler  = errors.New("another profiler is loaded in it")
	ErrTooEarly       = errors.New("its runtime has not started yet")
	ErrNoPlace        = errors.New("none of its directories can take the agent's library")
	ErrNotLoaded      = errors.New("its runtime cannot load the agent's library")
	ErrNoAgent        = errors.New("the agent does not connect")
	ErrStopped        = errors.New("the process is stopped")
	ErrNoAnswer       = errors.New("its runtime does not answer")
)

// Error says why the agent cannot be loaded into a process, and what to do.
type Error struct {
	PID    int    // 0: a process that was yet to be started
	Err    error  // one of the sentinels above, or the runtime's refusal
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

// Reason says why, without the process and the remedy.
func (e *Error) Reason() string {
	if e.Detail == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + " (" + e.Detail + ")"
}

func (e *Error) Unwrap() error { return e.Err }
