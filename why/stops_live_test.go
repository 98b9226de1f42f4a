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
		if r := look(t, a, why.Options{For: 2 * time.Second}); r.Stops > 0 {
			t.Errorf("a diagnosis: %d stops", r.Stops)
		}
	})
}
