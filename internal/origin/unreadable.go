package origin

import (
	"errors"
	"fmt"
	"strings"

	"clrsnap/internal/contract"
	"clrsnap/internal/engine"
)

// ErrUnsupported: there is a .NET runtime, but it cannot be read yet.
var ErrUnsupported = errors.New("this .NET runtime cannot be read")

// UnreadableError says why a runtime in a process cannot be read. The text ends with the remedy.
type UnreadableError struct {
	Remedy string // "" where no remedy is known
	err    error
}

func (e *UnreadableError) Error() string { return e.err.Error() }

func (e *UnreadableError) Unwrap() error { return e.err }

// Reason is the reason, without the remedy and without the text of ErrUnsupported.
func (e *UnreadableError) Reason() string {
	return strings.TrimPrefix(strings.TrimSuffix(e.Error(), ": "+e.Remedy), ErrUnsupported.Error()+": ")
}

// Unreadable says why the runtime of a process cannot be read: nil, or an *UnreadableError. err is the error of
// Engine.OpenRuntime.
func Unreadable(err error, from Origin) error {
	if err == nil || errors.Is(err, engine.ErrNativeAOT) { // the methods are native functions
		return nil
	}
	pid := from.PID()
	unsupported := func(remedy string) error {
		return &UnreadableError{remedy, fmt.Errorf("%w: process %d: %w: %s", ErrUnsupported, pid, err, remedy)}
	}
	if version, ok := errors.AsType[*contract.UnknownVersionError](err); ok {
		return &UnreadableError{version.Remedy(), fmt.Errorf("%w: process %d: %w", ErrUnsupported, pid, err)}
	}
	unfit := errors.Is(err, engine.ErrUnfit)
	switch {
	case unfit && from.Starting():
		const remedy = "try again in a moment"
		return &UnreadableError{remedy, fmt.Errorf("process %d seems to be starting: %w: %s", pid, err, remedy)}
	case unfit && from.LeftOut(err):
		return unsupported("see native stacks only with --native, or make a dump with more memory")
	case unfit, errors.Is(err, engine.ErrUnknown):
		return unsupported("update clrsnap, or see native stacks only with --native")
	}
	remedy := ""
	if format, ok := errors.AsType[*contract.UnknownFormatError](err); ok {
		remedy = format.Remedy
	}
	return &UnreadableError{remedy, fmt.Errorf("cannot read the .NET runtime in process %d: %w", pid, err)}
}
