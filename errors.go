package clrsnap

import (
	"errors"

	"clrsnap/internal/locate"
	"clrsnap/internal/mounts"
	"clrsnap/internal/search"
	"clrsnap/internal/session"
)

// What Open and Discover can say of a process. They come wrapped in errors whose texts name
// the process and say what to do next.
var (
	// ErrNotDotNet: there is no .NET runtime in the process.
	ErrNotDotNet = locate.ErrNotDotNet
	// ErrUnsupported: there is a .NET runtime, but not one that can be read yet.
	ErrUnsupported = session.ErrUnsupported
	// ErrMayBlock: the process can keep whoever looks at it waiting for ever.
	ErrMayBlock = mounts.ErrMayBlock
	// ErrNoAnswer: the process keeps whoever looks at it waiting.
	ErrNoAnswer = search.ErrNoAnswer
)

// BlockError is an ErrMayBlock, and says which file system it is.
type BlockError struct {
	Type  string // such as "fuse.sshfs"; "" for one that is not mounted where we can see it
	Place string // where it is mounted, or the path of what is mapped
	err   error
}

func (e *BlockError) Error() string { return e.err.Error() }

// Unwrap returns an error that is an ErrMayBlock.
func (e *BlockError) Unwrap() error { return e.err }

// publish turns an error of an inner package into one that is public.
func publish(err error) error {
	var public *Error
	if err == nil || errors.As(err, &public) {
		return err
	}
	if e, ok := errors.AsType[*session.Error](err); ok {
		return &Error{HRESULT: results[e.Kind], Thread: ThreadID(e.Thread), Text: e.Text, Err: e.Err}
	}
	if e, ok := errors.AsType[*mounts.BlockError](err); ok {
		return &BlockError{Type: e.Type, Place: e.Place, err: err}
	}
	return err
}

// results are what the profiling API says in such cases.
var results = map[session.Kind]HRESULT{
	session.Failed: E_FAIL, session.NoThread: CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD, session.NoRuntime: CORPROF_E_RUNTIME_UNINITIALIZED,
	session.Nested: CORPROF_E_STACKSNAPSHOT_UNSAFE, session.NoMethod: E_INVALIDARG,
}
