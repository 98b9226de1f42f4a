package testenv

import (
	"testing"
	"time"
)

// Hang is longer than anything may take, on any machine. A green test never waits so long. Beside thirty busy programs
// on two CPUs a program needed more than two minutes to get warm.
const Hang = 10 * time.Minute

// UntilSeen calls look again and again, until nothing is missing. look names the missing items. Beside other programs
// the wait takes longer, but never as long as Hang.
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
