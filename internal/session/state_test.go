package session

import (
	"testing"

	"clrsnap/internal/target"
)

// TestFutexState: a thread in futex(2) waits there only if the operation waits.
func TestFutexState(t *testing.T) {
	const wake, word = 1, 0x1000
	for name, c := range map[string]struct {
		args [6]uint64
		want string
	}{
		"wait":          {[6]uint64{word, futexWait | futexPrivate}, "waiting (futex)"},
		"until":         {[6]uint64{word, futexWaitBitset | futexPrivate | futexRealtime}, "waiting (futex)"},
		"for a lock":    {[6]uint64{word, futexLock}, "waiting (futex)"},
		"wake":          {[6]uint64{word, wake | futexPrivate, 1}, "in futex"},
		"not known how": {[6]uint64{}, "waiting (futex)"},
	} {
		if got := state(&target.Capture{SyscallNr: futexCall, SyscallArgs: c.args}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
