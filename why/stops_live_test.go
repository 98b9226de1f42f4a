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
		s := clrsnap.Inside(bridge.Access{}).Session(p)
		of := s.Live
		if err := of.CanLook(); err != nil {
			layer.Lacking(t, err.Error())
		}
		stops := func(err error, before int) int {
			if err != nil {
				t.Fatal(err)
			}
			return of.Stops() - before
		}
		for range 3 {
			livetest.StopsNobody(t, "stacks", func() int {
				before := of.Stops()
				_, err := s.Snapshot(context.Background(), session.SnapshotOptions{})
				return stops(err, before)
			})
			livetest.StopsNobody(t, "locks", func() int {
				before := of.Stops()
				_, err := p.SnapshotWaits(context.Background(), nil)
				return stops(err, before)
			})
		}
		livetest.StopsNobody(t, "a diagnosis", func() int {
			return look(t, a, why.Options{For: 2 * time.Second}).Stops
		})
	})
}
