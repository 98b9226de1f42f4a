package events_test

import (
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// TestDetached: the runtime's native threads of a subscription end with the subscription. Where the
// finalizer is blocked they stay in the runtime's list of threads, and the process can be read all the
// same.
func TestDetached(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "finalizer"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		s := subscribeTo(t, p, events.Options{Monitor: events.MonitorExceptions})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
			livetest.Open(t, a, clrsnap.Options{})
		}
	})
}
