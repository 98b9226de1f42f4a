package session

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/mounts"
	"clrsnap/internal/target/live"
)

// Kind is what an Error is about.
type Kind uint8

// The kinds.
const (
	Failed    Kind = iota
	NoThread       // there is no such live thread
	NoRuntime      // there is no runtime that can be asked
	Nested         // a walk was asked for inside the callback of another one
	NoMethod       // what should be a method or a type is none
)

// Error is what went wrong, and with which thread.
type Error struct {
	Kind   Kind
	Thread arch.Addr // 0: it was not about a thread
	Text   string
	Err    error // the cause, where there is one
}

func (e *Error) Error() string {
	s := e.Text
	if e.Thread != 0 {
		s = fmt.Sprintf("thread %v: %s", e.Thread, s)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// NestedError is the error of a capture inside the callback of a walk.
func NestedError(id arch.Addr) error {
	return &Error{Kind: Nested, Thread: id, Text: "a walk was asked for inside the callback of a walk"}
}

// Permanent reports whether an error of Open will not go away by waiting.
func Permanent(err error) bool {
	return Exited(err) || errors.Is(err, live.ErrPermission) || errors.Is(err, live.ErrArch) ||
		errors.Is(err, ErrUnsupported) || errors.Is(err, mounts.ErrMayBlock)
}

// Exited reports whether an error of Open means that the process has exited.
func Exited(err error) bool {
	return errors.Is(err, live.ErrNoProcess) || errors.Is(err, live.ErrZombie) || errors.Is(err, live.ErrExited)
}
