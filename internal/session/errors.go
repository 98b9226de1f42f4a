package session

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/mounts"
	"clrsnap/internal/origin"
	"clrsnap/internal/target/live"
)

// Kind is the subject of an Error.
type Kind uint8

// The kinds.
const (
	Failed    Kind = iota
	NoThread       // no live thread of this id
	NoRuntime      // no runtime to ask
	Nested         // a walk was asked for inside the callback of another walk
	NoMethod       // a value should be a method or a type, and is neither
)

// Error is a failure, with the thread concerned.
type Error struct {
	Kind   Kind
	Thread arch.Addr // 0: no thread
	Text   string
	Err    error // the cause, if there is one
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
		errors.Is(err, origin.ErrUnsupported) || errors.Is(err, mounts.ErrMayBlock)
}

// Exited reports whether an error of Open means that the process has exited.
func Exited(err error) bool {
	return errors.Is(err, live.ErrNoProcess) || errors.Is(err, live.ErrZombie) || errors.Is(err, live.ErrExited)
}
