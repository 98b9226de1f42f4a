package perfevent

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
)

// TestShares: samples are spread over threads like CPU time, and over functions like work.
func TestShares(t *testing.T) {
	layer.Live(t)
	eachScope(t, testShares)
}

func testShares(t *testing.T, scope Scope) {
	const period = time.Millisecond / 2
	p := start(t, "310s")
	parts := map[int]int{} // of 4, a thread's share in burn_a
	for range 3 {
		tid, a := p.burner()
		parts[tid] = a
	}
	sleeper := p.number("sleeper")

	used := usage{pid: p.pid, tids: slices.Collect(maps.Keys(parts))}
	used.note(t)
	e := open(t, Options{PID: p.pid, Period: period, StackBytes: 1024, BufferBytes: roomy, Scope: scope})
	used.note(t)
	all, inA, inB, last := map[int]int{}, map[int]int{}, map[int]int{}, time.Duration(0)
	disorder := 0
	visit := func(r *Record) {
		if r.Time < last {
			disorder++
		}
		last = r.Time
		if r.Kind != Sampled {
			return
		}
		if r.PID != p.pid || r.CPU < 0 || r.TID == 0 {
			t.Fatalf("%+v", r)
		}
		all[r.TID]++
		if within(uint64(r.Context.IP), p.a) {
			inA[r.TID]++
		} else if within(uint64(r.Context.IP), p.b) {
			inB[r.TID]++
		}
	}
	readUntil(t, e, visit, func() bool { return e.Stats().Samples >= 4500 })
	used.note(t)
	if err := e.Stop(visit); err != nil {
		t.Fatal(err)
	}
	used.note(t)
	// A virtual CPU may be taken away while the kernel writes a record. Without merging, every
	// other record would be in disorder.
	if disorder*50 > e.Stats().Samples {
		t.Errorf("%d of %d records are older than one before them", disorder, e.Stats().Samples)
	}
	if e.Stats().Lost != 0 {
		t.Errorf("lost samples: %+v", e.Stats())
	}
	if n := all[sleeper]; n != 0 {
		t.Errorf("%d samples of a thread that sleeps", n)
	}
	for i, tid := range used.tids {
		used.check(t, i, all[tid], period, 0)
		a, n := parts[tid], float64(all[tid])
		if got, want := float64(inA[tid])/n, float64(a)/4; math.Abs(got-want) > 0.05 {
			t.Errorf("thread %d is in burn_a in %.3f of %v samples, want %.3f", tid, got, n, want)
		}
		if got := float64(inA[tid]+inB[tid]) / n; got < 0.95 {
			t.Errorf("only %.3f of the samples of thread %d are where it burns", got, tid)
		}
	}
}

// TestThreads: threads that start and end later are noted in the scope PerThread, and sampled.
func TestThreads(t *testing.T) {
	layer.Live(t)
	p := start(t, "s")
	sleeper := p.number("sleeper")
	e := open(t, Options{PID: p.pid, Period: time.Millisecond, Scope: PerThread})
	p.command("2")
	tid, _ := p.burner()

	var started, samples int
	visit := func(r *Record) {
		switch {
		case r.Kind == Started && r.TID == tid:
			if r.PID != p.pid || r.ParentPID != p.pid || r.ParentTID != p.pid || samples > 0 {
				t.Errorf("after %d samples: %+v", samples, r)
			}
			started++
		case r.Kind == Sampled && r.TID == tid:
			samples++
		case r.Kind == Sampled && r.TID == sleeper:
			t.Error("a sample of a thread that sleeps")
		}
	}
	readUntil(t, e, visit, func() bool { return samples >= 100 })
	if started != 1 {
		t.Errorf("%d records of the thread's start", started)
	}

	ended := map[int]bool{}
	p.stdin.Close()
	readUntil(t, e, func(r *Record) {
		if r.Kind == Ended {
			ended[r.TID] = true
		}
	}, func() bool { return ended[tid] && ended[sleeper] && ended[p.pid] })
}

// TestWait: Wait waits as long as there is little to read, and no longer.
func TestWait(t *testing.T) {
	layer.Live(t)
	eachScope(t, testWait)
}

func testWait(t *testing.T, scope Scope) {
	p := start(t, "s")
	p.number("sleeper")
	e := open(t, Options{PID: p.pid, Period: time.Millisecond, BufferBytes: minRing, Scope: scope})
	from := time.Now()
	// Without a filter the samples of all other programs are in the rings, too.
	ok, err := e.Wait(50 * time.Millisecond)
	if d := time.Since(from); scope != Unfiltered && ok || err != nil || !ok && d < 50*time.Millisecond {
		t.Errorf("%v %v after %v with nothing to read", ok, err, d)
	}
	p.command("22")
	if ok, err := e.Wait(hang); !ok || err != nil {
		t.Fatalf("%v %v with enough to read", ok, err)
	}
	bytes := 0
	visit := func(r *Record) { bytes += len(r.Stack) }
	// What is enough to read may be other programs' samples, or records of their threads and mappings.
	readUntil(t, e, visit, func() bool { return bytes > 0 })
}
