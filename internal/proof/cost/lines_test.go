package cost

import (
	"context"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// BenchmarkLines measures what source lines add to the stacks of 55 threads: to the command, which reads the PDB each
// time (cold), and to snapshots of a process that stays open (warm). The floor has no lines. Aims: 15 ms more cold, 3
// ms warm.
func BenchmarkLines(b *testing.B) {
	a := testenv.Start(b, "idle", testenv.Options{Args: []string{"--threads", "50"}})
	b.Run("cold", func(b *testing.B) {
		exe := livetest.Command(b)
		compareLines(b, func(lines bool) time.Duration {
			which := map[bool]string{false: "--lines=never", true: "--lines=always"}[lines]
			begun := time.Now()
			out, err := exec.Command(exe, "stack", which, strconv.Itoa(a.PID)).Output()
			if err != nil || len(out) == 0 {
				b.Fatalf("%s: %d bytes, %v", which, len(out), err)
			}
			return time.Since(begun)
		})
	})
	b.Run("warm", func(b *testing.B) {
		with, without := livetest.Open(b, a, clrsnap.Options{Lines: true}), livetest.Open(b, a, clrsnap.Options{})
		snapshot := func(lines bool) time.Duration {
			p := map[bool]*clrsnap.Process{false: without, true: with}[lines]
			begun := time.Now()
			snap, err := p.SnapshotAll(context.Background(), nil)
			took := time.Since(begun)
			if err != nil || len(snap.Threads) < 50 {
				b.Fatalf("%d threads, %v", len(snap.Threads), err)
			}
			return took
		}
		snapshot(false)
		snapshot(true)
		compareLines(b, snapshot)
	})
}

// compareLines measures with and without lines in turns, and reports the medians and the difference. A pair's
// two measurements are of the same moment.
func compareLines(b *testing.B, measure func(lines bool) time.Duration) {
	b.Helper()
	var with, without samples
	var more []float64 // ms
	for i := 0; b.Loop(); i++ {
		var took [2]time.Duration // without and with
		for _, which := range [2]int{i % 2, 1 - i%2} {
			took[which] = measure(which == 1)
		}
		without, with = append(without, took[0]), append(with, took[1])
		more = append(more, float64(took[1]-took[0])/float64(time.Millisecond))
	}
	report(b, with, without, "lines-ms", "floor-ms", time.Millisecond)
	// The rest of the machine makes some pairs useless: hence the median, and its standard error by the quartiles.
	slices.Sort(more)
	n := len(more)
	b.ReportMetric(more[n/2], "more-ms")
	b.ReportMetric(0.93*(more[n*3/4]-more[n/4])/math.Sqrt(float64(n)), "more-ms-error")
}
