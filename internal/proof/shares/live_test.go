package shares

import (
	"strconv"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
)

// TestLiveLasts records, for long, a program that keeps some of its allocated objects, drops kept objects now and then,
// has compacting collections move everything, and also allocates objects that it never keeps. At the end, exactly the
// kept objects are alive, by site, and no handle is left.
func TestLiveLasts(t *testing.T) {
	layer.Proof(t)
	for _, runtime := range layer.Size(supported, testenv.Versions()) {
		t.Run(testenv.Name(runtime), func(t *testing.T) {
			testenv.Kit(t).Need(t, runtime)
			a := testenv.Start(t, "survivors", testenv.Options{
				Runtime: runtime, Args: []string{"--max-seconds", strconv.Itoa(layer.Size(120, 1200))},
			})
			p := livetest.Open(t, a, clrsnap.Options{})
			before := handlesOf(t, a)
			a.Ask("churn 20")
			r := livetest.RecordWhile(t, p, record.Options{
				Live: true, Collect: true,
				Events: events.Options{Monitor: events.MonitorAllocations | events.MonitorGC,
					AllocationBytes: 100 << 10},
			}, func() { comeAndGo(a, layer.Size(6*time.Second, 10*time.Minute)) })
			livetest.CheckLive(t, r, livetest.AskKept(t, a))
			m, _ := r.Mode(profile.Live)
			all, _ := r.Mode(profile.Alloc)
			gcs, _ := r.Mode(profile.GC)
			t.Logf("%v: %d sampled objects, of which %d are alive; %d pauses of the collector; %s blocks have moved",
				r.Duration.Round(time.Second), all.Samples, m.Samples, gcs.Samples, a.Ask("moved")[0])
			if m.Lost > 0 || all.Lost > 0 {
				t.Errorf("%d objects could not be followed, and %d not be recorded", m.Lost, all.Lost)
			}
			a.Ask("rest")
			if after := handlesOf(t, a); after > before+50 {
				t.Errorf("%d handles before, %d afterwards", before, after)
			}
			livetest.EndsWell(t, a)
		})
	}
}

// comeAndGo has the program keep and drop, until the time is up. The last action is to keep.
func comeAndGo(a *testenv.App, lasts time.Duration) {
	const forget, collect = 10, 4
	end := time.Now().Add(lasts)
	for i := 1; time.Now().Before(end); i++ {
		a.Ask("fill 5")
		if i%collect == 0 {
			a.Ask("collect")
		}
		if i%forget == 0 {
			a.Ask("forget")
		}
		time.Sleep(50 * time.Millisecond)
	}
	a.Ask("fill 20")
}

func handlesOf(t *testing.T, a *testenv.App) int {
	t.Helper()
	n, err := strconv.Atoi(a.Ask("handles")[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
