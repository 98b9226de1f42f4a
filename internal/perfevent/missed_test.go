package perfevent

import (
	"maps"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestMissed: samples with late timers are counted. Together with the taken samples they account
// for the whole CPU time. A copy of 64 KB takes longer than the shortest period, so timers miss
// some of their turns.
func TestMissed(t *testing.T) {
	layer.Quiet(t)
	testenv.NeedQuiet(t)
	p := start(t, "22")
	tids := []int{0, 0}
	for i := range tids {
		tids[i], _ = p.burner()
	}
	used := func() (sum time.Duration) {
		for _, tid := range tids {
			sum += cpuTime(t, p.pid, tid)
		}
		return sum
	}
	for _, tt := range []struct {
		period  time.Duration
		missing bool
	}{{minPeriod, true}, {defaultPeriod, false}} {
		e := open(t, Options{
			PID: p.pid, Period: tt.period, StackBytes: MaxStackBytes, BufferBytes: roomy, Scope: Filtered,
		})
		taken, from := 0, used()
		visit := func(r *Record) {
			switch r.Kind {
			case Sampled:
				taken++
			case Lost:
				taken += r.Lost
			}
		}
		readUntil(t, e, visit, func() bool { return used()-from > 500*time.Millisecond })
		if e.Stats().Missed != 0 {
			t.Errorf("it is known before the end that %d are missing", e.Stats().Missed)
		}
		had := used() - from
		if err := e.Stop(visit); err != nil {
			t.Fatal(err)
		}
		s := e.Stats()
		t.Logf("every %v: %v of CPU time, %d samples taken, %d missed, throttled %d times",
			tt.period, had, taken, s.Missed, s.Throttled)
		if all := time.Duration(taken+s.Missed) * tt.period; all < had*9/10 {
			t.Errorf("every %v: %d samples that were taken and %d that were missed stand for %v of %v",
				tt.period, taken, s.Missed, all, had)
		}
		if tt.missing && s.Missed < taken/50 {
			t.Errorf("every %v: only %d were missed, of %d that were taken", tt.period, s.Missed, taken)
		}
	}
}

func TestParseIdle(t *testing.T) {
	const stat = "cpu  10 0 20 700 50 0 0 0 0 0\ncpu0 5 0 10 300 20 0 0 0 0 0\ncpu12 5 0 10 400 30 0 0 0 0 0\n" +
		"cpu3 1 2 3 4\ncpu4 0 0 0 -1 0\ncpu5 0 0 0 99999999999999999999 0\ncpuset 0 0 0 1 1 0\nintr 1 2 3 4 5 6\n"
	want := idleTimes{0: 3200 * time.Millisecond, 12: 4300 * time.Millisecond}
	if got := parseIdle(stat); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := parseIdle(""); len(got) > 0 {
		t.Errorf("%v of nothing", got)
	}
	if sum, ok := (idleTimes{}).since(); ok {
		t.Errorf("%v since a time that is not known", sum)
	}
	before := readIdle()
	time.Sleep(30 * time.Millisecond)
	most := time.Duration(len(before)) * time.Minute
	if sum, ok := before.since(); !ok || sum < 0 || sum > most {
		t.Errorf("in a moment %d CPUs were idle for %v: %v", len(before), sum, ok)
	}
}
