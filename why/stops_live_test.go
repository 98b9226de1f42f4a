package why_test

import (
	"fmt"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/bridge"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/why"
)

// TestLookStopsNobody: a look at many computing threads, or at a web server under load, stops no thread if the kernel
// tells registers.
func TestLookStopsNobody(t *testing.T) {
	livetest.EachAtWork(t, func(t *testing.T, a *testenv.App) {
		if err := bridge.Session(livetest.Open(t, a, clrsnap.Options{})).Live.CanLook(); err != nil {
			layer.Lacking(t, err.Error())
		}
		testenv.UntilSeen(t, func() string {
			if r := look(t, a, why.Options{For: 2 * time.Second}); r.Stops > 0 {
				return fmt.Sprintf("a look without a stop: %d stops", r.Stops)
			}
			return ""
		})
	})
}
