package perfevent

import (
	"strings"
	"testing"
	"time"
)

// TestChurn: 200 threads come and go while sampling begins, over and over. None
// is missed, and none is sampled twice for the same time.
func TestChurn(t *testing.T) {
	const period = 200 * time.Microsecond
	const life = 20 // periods that each thread runs, as in target.c
	p := start(t, strings.Repeat("c", 200))
	p.scan("READY")
	total, threads, late, repeated := 0, 0, 0, 0
	for round := range 8 {
		e := open(t, Options{PID: p.pid, Period: period, StackBytes: 512})
		samples, alive, ended := map[int]int{}, map[int]bool{}, 0
		visit := func(r *Record) {
			switch r.Kind {
			case Started:
				alive[r.TID] = true
				samples[r.TID] = 0
			case Ended:
				// A thread can use more before it looks at the clock, and does not see the time
				// that starting and ending takes, but that is hardly as much again.
				if n := samples[r.TID]; alive[r.TID] && n > life*3/2 {
					t.Errorf("round %d: %d samples of a thread that lived for %d periods", round, n, life)
				}
				if alive[r.TID] {
					total += samples[r.TID]
					threads++
				}
				delete(alive, r.TID)
				ended++
			case Sampled:
				samples[r.TID]++
			}
		}
		readUntil(t, e, visit, func() bool { return ended >= 20 })
		if round%2 == 0 {
			if err := e.SetStackBytes(1024); err != nil {
				t.Fatal(err)
			}
			ended = 0
			readUntil(t, e, visit, func() bool { return ended >= 20 })
		}
		if e.gen.lateID != 0 {
			late++
		}
		repeated += e.Stats().Repeated
		if s := e.Stats(); s.Lost != 0 {
			t.Errorf("round %d: %+v", round, s)
		}
		e.Close()
	}
	t.Logf("%.1f samples a thread of %d, %d generations with late threads, %d samples dropped", float64(total)/float64(threads), threads, late, repeated)
	if mean := float64(total) / float64(threads); mean < life/2 || mean > life*1.2 {
		t.Errorf("%.1f samples a thread that lived for %d periods", mean, life)
	}
}
