package cost

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// A listener takes a process's notifications and drops them.
type listener struct {
	s              *events.Subscription
	stop           context.CancelFunc
	ended          chan error
	stacks, frames int // of the first notifications
}

// manyStacks is the number of notifications whose frames are counted.
const manyStacks = 1000

// hear subscribes. Until end is called, the process is the listener's alone.
func hear(tb testing.TB, p *clrsnap.Process, o events.Options, use func(*events.Notification)) *listener {
	tb.Helper()
	s, err := events.Subscribe(context.Background(), p, o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{s: s, stop: cancel, ended: make(chan error, 1)}
	go func() {
		for {
			n, err := s.Next(ctx)
			if err != nil {
				l.ended <- err
				return
			}
			if use != nil {
				use(n)
			}
			l.count(n)
		}
	}()
	return l
}

func (l *listener) count(n *events.Notification) {
	if l.stacks == manyStacks || !n.HasStack() {
		return
	}
	l.stacks++
	// A stack longer than the requested length is an error that does not matter.
	_ = n.DoStackSnapshot(func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
		l.frames++
		return nil
	}, 0, nil)
}

// end ends the subscription and returns the figures of all events.
func (l *listener) end(tb testing.TB) (all events.EventStats) {
	tb.Helper()
	l.stop()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		tb.Fatal(err)
	}
	for e := events.ObjectAllocated; e <= events.RuntimeResumeFinished; e++ {
		all = sum(all, l.s.Stats(e))
	}
	all = sum(all, l.s.Stats(events.ThreadWaited))
	if err := l.s.Close(); err != nil {
		tb.Fatal(err)
	}
	return all
}

func sum(a, b events.EventStats) events.EventStats {
	return events.EventStats{
		Seen: a.Seen + b.Seen, Published: a.Published + b.Published,
		Dropped: a.Dropped + b.Dropped, Failed: a.Failed + b.Failed,
	}
}

// A toll is what an event costs its thread.
type toll struct {
	name string
	o    *events.Options // nil: nobody listens
	cost []float64       // of a phase, µs of CPU time more for an event than without a listener

	stacks, frames int
	stats          events.EventStats
}

// tollTime is how long CPU time is measured. The program throws and starts
// threads so often that tollTime has enough events, and CPUs remain idle.
const tollTime = 4 * time.Second

// BenchmarkEventsToll measures the CPU time of a program for each exception,
// contention and start of a thread, with and without a listener. The cost of the
// callbacks shows in the way that chooses no event, the cost of a frame in stacks
// of one frame.
func BenchmarkEventsToll(b *testing.B) {
	const none = 1 << 40
	exceptions := func(every int64, frames int) *events.Options {
		return &events.Options{
			Monitor: events.MonitorExceptions, ExceptionEvery: every, MaxFrames: frames, RingBytes: 4 << 20,
		}
	}
	contention := func(shortest time.Duration, frames int) *events.Options {
		return &events.Options{Monitor: events.MonitorContention, ContentionMin: shortest, MaxFrames: frames}
	}
	threads := func(frames int) *events.Options {
		return &events.Options{Monitor: events.MonitorThreads, MaxFrames: frames}
	}
	b.Run("exception", func(b *testing.B) {
		tolls(b, "exception", "exception rethrow", []*toll{
			{name: "floor"}, {name: "none chosen", o: exceptions(none, 0)},
			{name: "one frame", o: exceptions(1, 1)}, {name: "all frames", o: exceptions(1, 0)},
		})
	})
	b.Run("contention", func(b *testing.B) {
		tolls(b, "contention", "contention", []*toll{
			{name: "floor"}, {name: "none chosen", o: contention(time.Hour, 0)},
			{name: "one frame", o: contention(0, 1)}, {name: "all frames", o: contention(0, 0)},
		})
	})
	b.Run("thread", func(b *testing.B) {
		tolls(b, "thread", "thread", []*toll{
			{name: "floor"}, {name: "one frame", o: threads(1)}, {name: "all frames", o: threads(0)},
		})
	})
}

func tolls(b *testing.B, kind, truths string, all []*toll) {
	a := testenv.Start(b, "events", testenv.Options{
		Args: []string{"--kinds", kind, "--throws", "8000", "--starts", "800", "--max-seconds", "7200"},
	})
	p := livetest.Open(b, a, clrsnap.Options{})
	var alone []float64
	cpuPerEvent(b, a, truths) // while the runtime compiles code, and compiles it better
	before := cpuPerEvent(b, a, truths)
	for i := 0; b.Loop(); i++ {
		for j := range all {
			t := all[(i+j)%len(all)]
			during := t.measure(b, a, p, truths)
			after := cpuPerEvent(b, a, truths)
			t.cost = append(t.cost, during-(before+after)/2)
			alone, before = append(alone, after), after
		}
	}
	livetest.EndsWell(b, a)
	t := newColumns("way\tphases\tmore µs an event\tmedian\tframes\tseen\tpublished\tdropped\tno stack")
	for _, w := range all {
		cost, _ := mean(w.cost)
		frames := float64(w.frames) / float64(max(1, w.stacks))
		t.row("%s\t%d\t%s\t%.2f\t%.1f\t%d\t%d\t%d\t%d",
			w.name, len(w.cost), spread(w.cost), median(w.cost), frames,
			w.stats.Seen, w.stats.Published, w.stats.Dropped, w.stats.Failed)
		metric(b, cost, w.name+"-µs")
	}
	b.Logf("phases of %v; if nobody listens, %s µs of CPU time for an event and what is done between events\n%s",
		tollTime, spread(alone), t)
}

func (t *toll) measure(b *testing.B, a *testenv.App, p *clrsnap.Process, truths string) float64 {
	b.Helper()
	if t.o == nil {
		return cpuPerEvent(b, a, truths)
	}
	l := hear(b, p, *t.o, nil)
	cost := cpuPerEvent(b, a, truths)
	s := l.end(b)
	t.stacks, t.frames = t.stacks+l.stacks, t.frames+l.frames
	t.stats = sum(t.stats, s)
	return cost
}

// cpuPerEvent is how many µs of CPU time the program uses for each event.
func cpuPerEvent(b *testing.B, a *testenv.App, truths string) float64 {
	b.Helper()
	time.Sleep(500 * time.Millisecond) // an observer has come or gone
	count := func() (n int64) {
		_, all := a.AskTruths()
		for _, t := range all {
			if strings.Contains(truths, t.Kind) {
				n += t.Count
			}
		}
		return n
	}
	events, cpu := count(), livetest.CPU(b, a.PID)
	time.Sleep(tollTime)
	cpu = livetest.CPU(b, a.PID) - cpu
	return float64(cpu) / float64(time.Microsecond) / float64(max(1, count()-events))
}
