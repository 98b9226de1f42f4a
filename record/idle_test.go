package record_test

import (
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestIdleSamples: samples of threads without work are told from samples of other threads.
func TestIdleSamples(t *testing.T) {
	a := testenv.Start(t, "idle", testenv.Options{Args: []string{"--threads", "2", "--pool", "2", "--resting"}})
	r := livetest.Recorded(t, livetest.Open(t, a, clrsnap.Options{}), record.Options{
		Modes: []profile.Mode{profile.Wall}, Duration: time.Second,
	})
	spent := map[snapshot.Idle]time.Duration{}
	for i := range r.Samples {
		x := &r.Samples[i]
		idle := r.Idle(x)
		spent[idle] += time.Duration(x.Weight)
		for l := range r.Stack(x.Node) {
			if r.Functions[l.Function].Module == "idle" && idle != "" {
				t.Errorf("a sample of %+v is called idle as %q", r.Threads[x.Thread], idle)
				break
			}
		}
	}
	for idle, threads := range map[snapshot.Idle]time.Duration{
		"": 3 + 2 + 2 + 3, snapshot.IdleWorker: 4, snapshot.IdleTimer: 1, snapshot.IdleGate: 1, snapshot.IdleWaiter: 1,
		snapshot.IdleSockets: 1, "finalizer": 1,
	} {
		if got, want := spent[idle], threads*r.Duration; got < want*8/10 || got > want*12/10 {
			t.Errorf("%q: %v, want about %v", idle, got, want)
		}
	}
	livetest.EndsWell(t, a)
}
