package target

import (
	"errors"
	"fmt"
)

// ThreadInfo describes a thread as the kernel sees it.
type ThreadInfo struct {
	TID       int
	Name      string
	State     byte   // R S D T t Z X I, as in proc_pid_stat(5)
	StartTime uint64 // clock ticks since boot; 0 where not known: in a core dump
}

// ErrThreadExited: the thread has exited, or its id belongs to another process now.
var ErrThreadExited = errors.New("thread has exited")

// ThreadError is an error of one thread.
type ThreadError struct {
	TID    int
	Err    error // ErrThreadExited, an error of package live, or a system call's error
	Detail string
}

func (e *ThreadError) Error() string {
	s := fmt.Sprintf("thread %d: %v", e.TID, e.Err)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

func (e *ThreadError) Unwrap() error { return e.Err }
