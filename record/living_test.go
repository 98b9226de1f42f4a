package record_test

import (
	"runtime"
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

// TestRecordLiving: compiled expressions and similar code, alive as long as the program, have names
// and complete stacks, although the machine is so busy that samples are read late.
func TestRecordLiving(t *testing.T) {
	layer.Each(t)
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		for name, living := range map[string]string{"one": "1", "many": "300"} {
			t.Run(name, func(t *testing.T) { testLiving(t, runtime, living) })
		}
	})
}

func testLiving(t *testing.T, on, living string) {
	a := testenv.Start(t, "living", testenv.Options{Runtime: on, Args: []string{"--living", living}})
	p := livetest.Open(t, a, clrsnap.Options{})
	livetest.StartBusy(t, 2*runtime.NumCPU())
	for _, o := range []record.Options{
		{Modes: []profile.Mode{profile.CPU, profile.Wall}},
		{
			Modes:  []profile.Mode{profile.CPU, profile.Wall},
			Events: events.Options{Monitor: events.MonitorAll, RingBytes: 4 << 20},
		},
	} {
		o.Duration = 1500 * time.Millisecond
		testenv.UntilSeen(t, func() string {
			r := livetest.Recorded(t, p, o)
			for _, m := range r.Modes {
				t.Log(livetest.StatsLine(t, r, m.Mode))
			}
			m := livetest.CheckMarks(t, r)
			if t.Logf("%d frames of %d methods", m.Live, len(m.Methods)); m.Live == 0 {
				return "a method that lives: " + livetest.Top(t, r)
			}
			return ""
		})
	}
	livetest.EndsWell(t, a)
}
