package clrsnap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"fmt"
)

// HRESULT is a result of the profiling API. The values are those of the
// runtime's corerror.h. As an error it works with errors.Is:
//
//	if errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) { /* try again */ }
type HRESULT uint32

// The results of this package. S_OK is never an error: a nil error stands for S_OK.
const (
	S_OK HRESULT = 0

	// S_FALSE: the walk reached the base of the stack, but managed frames may
	// be missing at its top, because a thread in cooperative mode was walked
	// without a seed.
	S_FALSE HRESULT = 1

	E_NOTIMPL    HRESULT = 0x80004001
	E_FAIL       HRESULT = 0x80004005
	E_INVALIDARG HRESULT = 0x80070057

	CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD HRESULT = 0x8013135e
	CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX      HRESULT = 0x8013135f
	CORPROF_E_STACKSNAPSHOT_UNSAFE             HRESULT = 0x80131360
	CORPROF_E_STACKSNAPSHOT_ABORTED            HRESULT = 0x80131361
	CORPROF_E_RUNTIME_UNINITIALIZED            HRESULT = 0x80131371
	CORPROF_E_INCONSISTENT_WITH_FLAGS          HRESULT = 0x80131374
)

var hresultNames = map[HRESULT]string{
	S_OK: "S_OK", S_FALSE: "S_FALSE", E_NOTIMPL: "E_NOTIMPL", E_FAIL: "E_FAIL", E_INVALIDARG: "E_INVALIDARG",
	CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD: "CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD",
	CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX:      "CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX",
	CORPROF_E_STACKSNAPSHOT_UNSAFE:             "CORPROF_E_STACKSNAPSHOT_UNSAFE",
	CORPROF_E_STACKSNAPSHOT_ABORTED:            "CORPROF_E_STACKSNAPSHOT_ABORTED",
	CORPROF_E_RUNTIME_UNINITIALIZED:            "CORPROF_E_RUNTIME_UNINITIALIZED",
	CORPROF_E_INCONSISTENT_WITH_FLAGS:          "CORPROF_E_INCONSISTENT_WITH_FLAGS",
}

// Succeeded reports whether h is a success code.
func (h HRESULT) Succeeded() bool { return h < 0x80000000 }

func (h HRESULT) Error() string {
	if s, ok := hresultNames[h]; ok {
		return s
	}
	return fmt.Sprintf("HRESULT 0x%08x", uint32(h))
}

// Error is an HRESULT with a text that says what happened, and to which thread.
type Error struct {
	HRESULT HRESULT
	Thread  ThreadID // 0: the error is not about a thread
	Text    string
	Err     error // the cause, or nil
}

func (e *Error) Error() string {
	said := session.Error{Thread: arch.Addr(e.Thread), Text: e.Text, Err: e.Err}
	return said.Error() + " (" + e.HRESULT.Error() + ")"
}

// Unwrap makes errors.Is find both the HRESULT and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.HRESULT}
	}
	return []error{e.HRESULT, e.Err}
}
