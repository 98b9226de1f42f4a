package record_test

import (
	"context"
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
		of := clrsnap.Inside(bridge.Access{}).Session(p).Live
		if err := of.CanLook(); err != nil {
			layer.Lacking(t, err.Error())
		}
		livetest.StopsNobody(t, "a recording", func() int {
			before := of.Stops()
			r, err := record.Record(context.Background(), p, record.Options{
				Modes: []profile.Mode{profile.CPU, profile.Wall}, Rate: 99, Duration: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			if m, ok := r.Mode(profile.Wall); !ok || m.Samples == 0 {
				t.Errorf("%+v", m)
			}
			return int(of.Stops() - before)
		})
	})
}
