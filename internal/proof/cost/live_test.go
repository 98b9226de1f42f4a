package cost

import (
	"strconv"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// A liveToll is the cost for a program of recording its allocations, or of following the objects as well.
type liveToll struct {
	name       string
	every      int64 // bytes for each recorded object; 0: nothing is recorded
	live       bool
	async      bool      // also record the awaiters of the methods that allocate
	rate, cost []float64 // of a phase: MB allocated a second, and ns of CPU time for a KB
	samples    int
	lost       int // objects that the agent could not follow
}

// BenchmarkLive measures a program with two threads that only allocate small objects; most objects die at once. The
// floor is the program without a recording. The question is the cost of --live beyond --event alloc.
func BenchmarkLive(b *testing.B) {
	all := []*liveToll{
		{name: "nothing"}, {name: "alloc", every: 512 << 10}, {name: "alloc-live", every: 512 << 10, live: true},
		{name: "alloc-100KB", every: 100 << 10}, {name: "alloc-100KB-live", every: 100 << 10, live: true},
	}
	liveTolls(b, all, "survivors", "--max-seconds", "7200", "--fill", "20")
}

// BenchmarkAwaitsOfEvents measures a program with two async methods that only allocate; six other methods await them
// in a row. The question is the cost of copying the awaiters, beyond --event alloc.
func BenchmarkAwaitsOfEvents(b *testing.B) {
	liveTolls(b, []*liveToll{
		{name: "nothing"}, {name: "alloc", every: 512 << 10}, {name: "alloc-async", every: 512 << 10, async: true},
		{name: "alloc-100KB", every: 100 << 10}, {name: "alloc-100KB-async", every: 100 << 10, async: true},
	}, "tasks", "--max-seconds", "7200")
}

// liveTolls measures a program in all ways in turn.
func liveTolls(b *testing.B, all []*liveToll, app string, args ...string) {
	b.Helper()
	a := testenv.Start(b, app, testenv.Options{Args: args})
	plain, async := livetest.Open(b, a, clrsnap.Options{}), livetest.Open(b, a, clrsnap.Options{Async: true})
	allocates(b, a) // while the runtime compiles code, and compiles it better
	for i := 0; b.Loop(); i++ {
		for j := range all {
			w := all[(i+j)%len(all)]
			p := plain
			if w.async {
				p = async
			}
			w.measure(b, a, p)
		}
	}
	livetest.EndsWell(b, a)
	t := newColumns("way\tphases\tMB a second\tns of CPU a KB\tmedian\tsamples\tnot followed")
	for _, w := range all {
		t.row("%s\t%d\t%.0f\t%s\t%.2f\t%d\t%d", w.name, len(w.cost), median(w.rate), spread(w.cost), median(w.cost),
			w.samples, w.lost)
		metric(b, median(w.cost), w.name+"-ns/KB")
	}
	b.Logf("phases of %v\n%s", tollTime, t)
}

func (w *liveToll) measure(b *testing.B, a *testenv.App, p *clrsnap.Process) {
	b.Helper()
	var rate, cost float64
	do := func() { rate, cost = allocates(b, a) }
	if w.every == 0 {
		do()
	} else {
		r := livetest.RecordWhile(b, p, record.Options{
			Live: w.live, Events: events.Options{Monitor: events.MonitorAllocations, AllocationBytes: w.every},
		}, do)
		m, _ := r.Mode(profile.Alloc)
		w.samples += m.Samples
		m, _ = r.Mode(profile.Live)
		w.lost += m.Lost
	}
	w.rate, w.cost = append(w.rate, rate), append(w.cost, cost)
}

// allocates is how many MB the program allocates in a second, and its CPU time for a KB, in ns.
func allocates(b *testing.B, a *testenv.App) (rate, cost float64) {
	b.Helper()
	time.Sleep(500 * time.Millisecond) // an observer has come or gone
	cpu := livetest.CPU(b, a.PID)
	rate, err := strconv.ParseFloat(a.Ask("throughput " + strconv.Itoa(int(tollTime/time.Millisecond)))[0], 64)
	if err != nil || rate <= 0 {
		b.Fatalf("%v MB a second: %v", rate, err)
	}
	cpu = livetest.CPU(b, a.PID) - cpu
	return rate, float64(cpu) / (rate * 1000 * tollTime.Seconds())
}
