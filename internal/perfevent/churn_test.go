package perfevent

import (
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
)

// TestChurn: in the scope PerThread, 100 threads start and end while sampling begins and changes,
// again and again. No thread is missed, and no thread is sampled twice for the same time.
func TestChurn(t *testing.T) {
	layer.Live(t)
	const period = 200 * time.Microsecond
	p := start(t, strings.Repeat("c", 100))
	p.scan("READY")
	c := churn{}
	late, repeated := 0, 0
	for range 2 {
		e := open(t, Options{PID: p.pid, Period: period, StackBytes: 512, Scope: PerThread})
		c.begin()
		readUntil(t, e, c.visit, func() bool { return c.ended >= 20 })
		if err := e.SetStackBytes(1024); err != nil {
			t.Fatal(err)
		}
		c.ended = 0
		readUntil(t, e, c.visit, func() bool { return c.ended >= 20 })
		if e.gen.lateID != 0 {
			late++
		}
		repeated += e.Stats().Repeated
		e.Close()
	}
	mean := float64(c.samples) / float64(c.lives)
	t.Logf("%d threads seen from start to end, %.1f samples each; "+
		"%d generations with late threads, %d samples dropped, %d records lost",
		c.lives, mean, late, repeated, c.lost)
	if c.tooMany > c.lives/20 {
		t.Errorf("%d of %d threads have far more samples than they had time", c.tooMany, c.lives)
	}
	if mean < life*0.8 || mean > life*1.2 {
		t.Errorf("%.1f samples a thread that lived for %d periods", mean, life)
	}
}

// TestTwice: a thread with inherited events and its own events beside them is sampled once, and
// so are its child threads. The test also shows that a thread with inherited events is
// recognised, as Open requires.
func TestTwice(t *testing.T) {
	layer.Live(t)
	const period = 200 * time.Microsecond
	p := start(t, "")
	p.scan("READY")
	e := open(t, Options{PID: p.pid, Period: period, StackBytes: 512, BufferBytes: roomy, Scope: PerThread})
	p.command("2c")
	tid, _ := p.burner()
	churner := p.number("churner")

	e.inherited(e.gen)
	for _, tid := range []int{tid, churner} {
		if !e.gen.known[tid] {
			t.Errorf("thread %d was not seen to inherit events: %v", tid, e.gen.known)
		}
		delete(e.gen.known, tid)
	}
	if n, err := e.gen.openThreads(e, []int{p.pid, tid, churner}, true); n != 2 || err != nil || e.gen.lateID == 0 {
		t.Fatalf("%d threads given events, %v", n, err)
	}
	e.accept.spans = nil
	used, samples := usage{pid: p.pid, tids: []int{tid}}, 0
	used.note(t)
	e.accept.begin(e.gen, monotonic())
	used.note(t)
	c := churn{}
	c.begin()
	visit := func(r *Record) {
		c.visit(r)
		if r.Kind == Sampled && r.TID == tid {
			samples++
		}
	}
	readUntil(t, e, visit, func() bool { return c.lives >= 100 })
	used.note(t)
	if err := e.Stop(visit); err != nil {
		t.Fatal(err)
	}
	used.note(t)
	used.check(t, 0, samples, period, 0)
	if mean := float64(c.samples) / float64(c.lives); mean < life*0.8 || mean > life*1.2 {
		t.Errorf("%.1f samples a thread that lived for %d periods", mean, life)
	}
	if s := e.Stats(); s.Repeated < s.Samples/2 {
		t.Errorf("threads do not have their events twice, so nothing was tested: %+v", s)
	}
}

const life = 20 // periods of running of each thread, as in target.c

// churn counts the samples of threads seen from their start to their end.
type churn struct {
	alive                                map[int]int // samples by thread
	ended, lives, samples, tooMany, lost int
}

func (c *churn) begin() {
	c.alive, c.ended = map[int]int{}, 0
}

func (c *churn) visit(r *Record) {
	n, seen := c.alive[r.TID]
	switch r.Kind {
	case Started:
		c.alive[r.TID] = 0
	case Sampled:
		if seen {
			c.alive[r.TID]++
		}
	case Ended:
		c.ended++
		if !seen {
			return
		}
		delete(c.alive, r.TID)
		c.lives++
		c.samples += n
		if n > life*3/2 {
			c.tooMany++
		}
	case Lost: // with 200 threads that want two CPUs, we may be late ourselves
		c.lost += r.Lost
		clear(c.alive)
	}
}
