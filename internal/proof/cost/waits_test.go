package cost

import (
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// A waitToll is the cost for a program of reporting its waits.
type waitToll struct {
	name       string
	o          *events.Options // nil: nobody listens
	rate, cost []float64       // of a phase: waits a second, µs of CPU time for a wait and the work between waits
	stats      events.EventStats
}

// BenchmarkEventsWaits measures a program that only waits: pairs of threads wake each other as often as possible,
// 100,000 times a second and more. Nearly all of these waits are too short to be recorded.
func BenchmarkEventsWaits(b *testing.B) {
	waits := func(shortest time.Duration, more events.Monitor) *events.Options {
		return &events.Options{Monitor: events.MonitorWaits | more, WaitMin: shortest, RingBytes: 4 << 20}
	}
	all := []*waitToll{
		{name: "nobody listens"}, {name: "none chosen", o: waits(time.Hour, 0)},
		{name: "1 ms or longer", o: waits(time.Millisecond, 0)},
		{name: "1 ms or longer, and contention", o: waits(time.Millisecond, events.MonitorContention)},
		{name: "all, with stacks", o: waits(0, 0)},
	}
	a := testenv.Start(b, "blocked",
		testenv.Options{Args: []string{"--pairs", "4", "--pairs-only", "--max-seconds", "7200"}})
	p := livetest.Open(b, a, clrsnap.Options{})
	turns(b, a) // while the runtime compiles code, and compiles it better
	for i := 0; b.Loop(); i++ {
		for j := range all {
			all[(i+j)%len(all)].measure(b, a, p)
		}
	}
	livetest.EndsWell(b, a)
	t := newColumns("way\tphases\twaits a second\tµs of CPU a wait\tmedian\tseen\tpublished\tdropped\tno stack")
	for _, w := range all {
		t.row("%s\t%d\t%.0f\t%s\t%.2f\t%d\t%d\t%d\t%d", w.name, len(w.cost), median(w.rate), spread(w.cost),
			median(w.cost), w.stats.Seen, w.stats.Published, w.stats.Dropped, w.stats.Failed)
		cost, _ := mean(w.cost)
		metric(b, cost, w.name+"-µs")
	}
	b.Logf("phases of %v\n%s", tollTime, t)
}

func (w *waitToll) measure(b *testing.B, a *testenv.App, p *clrsnap.Process) {
	b.Helper()
	var l *listener
	if w.o != nil {
		l = hear(b, p, *w.o, nil)
	}
	rate, cost := turns(b, a)
	w.rate, w.cost = append(w.rate, rate), append(w.cost, cost)
	if l != nil {
		w.stats = sum(w.stats, l.end(b))
	}
}

// turns is how often the program waits in a second, and its CPU time for a wait, in µs.
func turns(b *testing.B, a *testenv.App) (rate, cost float64) {
	b.Helper()
	time.Sleep(500 * time.Millisecond) // an observer has come or gone
	count := func() (at time.Duration, n int64) {
		at, all := a.AskTruths()
		for _, t := range all {
			n += t.Count
		}
		return at, n
	}
	from, before := count()
	cpu := livetest.CPU(b, a.PID)
	time.Sleep(tollTime)
	cpu = livetest.CPU(b, a.PID) - cpu
	to, after := count()
	n := float64(max(1, after-before))
	return n / (to - from).Seconds(), float64(cpu) / float64(time.Microsecond) / n
}
