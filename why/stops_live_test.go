package why_test

import (
	"context"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/bridge"
	"clrsnap/internal/livetest"
	"clrsnap/internal/session"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/why"
)

// TestLookStopsNobody: stacks, locks and a diagnosis of computing threads, or of a web server under load, stop no
// thread if the kernel tells registers.
func TestLookStopsNobody(t *testing.T) {
	livetest.EachAtWork(t, func(t *testing.T, a *testenv.App) {
		p := livetest.Open(t, a, clrsnap.Options{})
		s := bridge.Session(p)
		of := s.Live
		if err := of.CanLook(); err != nil {
			layer.Lacking(t, err.Error())
		}
		for range 3 {
			if _, err := s.Snapshot(context.Background(), session.SnapshotOptions{}); err != nil || of.Stops() > 0 {
				t.Fatalf("stacks: %v, %d stops", err, of.Stops())
			}
			if _, err := p.SnapshotWaits(context.Background(), nil); err != nil || of.Stops() > 0 {
				t.Fatalf("locks: %v, %d stops", err, of.Stops())
			}
		}
		// A thread that has a CPU at each try is stopped in the end: never in two diagnoses, one after the other.
		for range 2 {
			r := look(t, a, why.Options{For: 2 * time.Second})
			if r.Stops == 0 {
				return
			}
			t.Logf("a diagnosis: %d stops", r.Stops)
		}
		t.Error("each diagnosis stops threads")
	})
}
