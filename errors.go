package clrsnap

import (
	"errors"

	"clrsnap/internal/locate"
	"clrsnap/internal/mounts"
	"clrsnap/internal/origin"
	"clrsnap/internal/search"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
)

// Errors of this package for errors.Is. Functions return errors that wrap these errors. The text names the process and
// says what to do next.
var (
	// ErrNotDotNet: there is no .NET runtime in the process.
	ErrNotDotNet = locate.ErrNotDotNet
	// ErrUnsupported: there is a .NET runtime, but clrsnap cannot read its version yet.
	ErrUnsupported = origin.ErrUnsupported
	// ErrNoProcess: there is no such process.
	ErrNoProcess = live.ErrNoProcess
	// ErrNotProcess: the id belongs to a thread, or to a kernel thread.
	ErrNotProcess = errors.New("not a process")
	// ErrPermission: this process may not read the other process. The error is an *AttachError, and its Remedy says
	// what to do.
	ErrPermission = live.ErrPermission
	// ErrTraced: a debugger is attached to the process.
	ErrTraced = live.ErrTraced
	// ErrMachine: clrsnap does not support the process's CPU architecture.
	ErrMachine = live.ErrArch
	// ErrExited: the process has exited.
	ErrExited = live.ErrExited
	// ErrThreadExited: the thread has exited.
	ErrThreadExited = target.ErrThreadExited
	// ErrMayBlock: the process can keep its reader waiting for ever. The error is a *BlockError.
	ErrMayBlock = mounts.ErrMayBlock
	// ErrNoHeap: the layout of the runtime's heap is not known.
	ErrNoHeap = session.ErrNoHeap
	// ErrNoAnswer: the process does not answer in time. Discover lists such processes.
	ErrNoAnswer = search.ErrNoAnswer
)

// AttachError says why a process cannot be read, and what to do.
type AttachError struct {
	PID    int
	Detail string // more about the cause; "" if Unwrap says everything
	Remedy string // what to do next; "" if nothing helps
	err    error
}

func (e *AttachError) Error() string { return e.err.Error() }

// Unwrap returns an error that is ErrNoProcess, ErrNotProcess, ErrPermission, ErrTraced, ErrMachine or ErrExited.
func (e *AttachError) Unwrap() error { return e.err }

// Is reports whether e is an ErrNotProcess or an ErrExited.
func (e *AttachError) Is(err error) bool {
	switch err {
	case ErrNotProcess:
		return errors.Is(e.err, live.ErrKernelThread) || errors.Is(e.err, live.ErrNotProcess)
	case ErrExited:
		return errors.Is(e.err, live.ErrZombie)
	}
	return false
}

// BlockError is an ErrMayBlock, and says which file system can keep the reader waiting.
type BlockError struct {
	Type  string // such as "fuse.sshfs"; "" if its mount is not visible here
	Place string // where it is mounted, or the path of the mapped file
	err   error
}

func (e *BlockError) Error() string { return e.err.Error() }

// Unwrap returns an error that is an ErrMayBlock.
func (e *BlockError) Unwrap() error { return e.err }

// publish turns an error of an inner package into a public error.
func publish(err error) error {
	var public *Error
	if err == nil || errors.As(err, &public) {
		return err
	}
	if e, ok := errors.AsType[*session.Error](err); ok {
		return &Error{HRESULT: results[e.Kind], Thread: ThreadID(e.Thread), Text: e.Text, Err: e.Err}
	}
	if e, ok := errors.AsType[*live.AttachError](err); ok {
		return &AttachError{PID: e.PID, Detail: e.Detail, Remedy: e.Remedy, err: err}
	}
	if e, ok := errors.AsType[*mounts.BlockError](err); ok {
		return &BlockError{Type: e.Type, Place: e.Place, err: err}
	}
	return err
}

// results are the HRESULTs of a session.Error's kinds.
var results = map[session.Kind]HRESULT{
	session.Failed: E_FAIL, session.NoThread: CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD,
	session.NoRuntime: CORPROF_E_RUNTIME_UNINITIALIZED,
	session.Nested:    CORPROF_E_STACKSNAPSHOT_UNSAFE, session.NoMethod: E_INVALIDARG,
}
