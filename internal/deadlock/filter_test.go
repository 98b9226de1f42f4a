package deadlock_test

import (
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestLostOfSome: a permit that none of all threads has is lost. Of some threads alone that cannot be said: another
// thread may have the permit.
func TestLostOfSome(t *testing.T) {
	layer.Live(t)
	a := testenv.Start(t, "ailing", testenv.Options{Args: []string{"--of", "lost-token"}})
	p := livetest.Open(t, a, clrsnap.Options{Permits: clrsnap.PermitsAlways})
	lost := func(filter clrsnap.Filter) int {
		s, err := p.SnapshotWaits(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Lost)
	}
	livetest.Await(t, "a permit is lost", func() bool { return lost(nil) == 1 })
	for range 3 {
		if n := lost(func(th *clrsnap.Thread) bool { return th.ManagedID == 1 }); n > 0 {
			t.Errorf("of one thread: %d lost permits", n)
		}
	}
}
