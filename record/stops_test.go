package record_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/bridge"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
)

// TestRecordStopsNobody: a recording of many computing threads, or of a web server under load, stops no thread if the
// kernel tells registers.
func TestRecordStopsNobody(t *testing.T) {
	livetest.EachAtWork(t, func(t *testing.T, a *testenv.App) {
		p := livetest.Open(t, a, clrsnap.Options{})
		if err := bridge.Session(p).Live.CanLook(); err != nil {
			layer.Lacking(t, err.Error())
		}
		testenv.UntilSeen(t, func() string {
			r, err := record.Record(context.Background(), p, record.Options{
				Modes: []profile.Mode{profile.CPU, profile.Wall}, Rate: 99, Duration: 2 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			m, ok := r.Mode(profile.Wall)
			if !ok || m.Samples == 0 {
				t.Fatalf("%+v", m)
			}
			if m.Pauses.Count+m.Released > 0 {
				return fmt.Sprintf("a recording without a stop: %d stops, %d samples", m.Pauses.Count, m.Samples)
			}
			return ""
		})
	})
}
