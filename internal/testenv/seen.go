package testenv

import (
	"testing"
	"time"
)

// Hang is how long nothing at all may take, on any machine. A test that is green never waits for its end.
const Hang = 2 * time.Minute

// UntilSeen looks again and again, until all that must be seen has been seen. look says what is missing. Beside other
// programs that takes longer, but never as long as what hangs.
func UntilSeen(tb testing.TB, look func() (missing string)) {
	tb.Helper()
	for end := time.Now().Add(Hang); ; time.Sleep(10 * time.Millisecond) {
		missing := look()
		if missing == "" {
			return
		}
		if tb.Failed() || time.Now().After(end) {
			tb.Errorf("not seen: %s", missing)
			return
		}
	}
}
