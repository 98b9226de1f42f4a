package session

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"clrsnap/internal/testenv"
)

// BenchmarkWaits measures the cost of explaining threads' waits and holds: Snapshot with and without. Aim for 50
// threads and 10,000 sync blocks: 20 ms more.
func BenchmarkWaits(b *testing.B) {
	for _, m := range []struct{ threads, blocks int }{{50, 0}, {50, 10_000}, {50, 1_000_000}, {1000, 0}} {
		b.Run(fmt.Sprintf("%dthreads/%dblocks", m.threads, m.blocks), func(b *testing.B) {
			a := testenv.Start(b, "crowd", testenv.Options{Args: []string{
				"--threads", fmt.Sprint(m.threads), "--syncblocks", fmt.Sprint(m.blocks),
			}})
			with, without := openFor(b, a), openFor(b, a)
			without.Runtime.Locks = nil
			var took [2]time.Duration
			fastest := [2]time.Duration{time.Hour, time.Hour}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for b.Loop() {
				for i, p := range []*Process{with, without} {
					start := time.Now()
					if _, err := p.Snapshot(context.Background(), SnapshotOptions{}); err != nil {
						b.Fatal(err)
					}
					d := time.Since(start)
					took[i] += d
					fastest[i] = min(fastest[i], d)
				}
			}
			runtime.ReadMemStats(&after)
			ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
			n := time.Duration(b.N)
			b.ReportMetric(ms(took[0]/n), "ms")
			b.ReportMetric(ms(took[1]/n), "floor-ms")
			b.ReportMetric(ms(fastest[0]), "ms-min")
			b.ReportMetric(ms(fastest[1]), "floor-ms-min")
			b.ReportMetric(float64(after.Sys)/(1<<20), "MB")
			b.ReportMetric(0, "ns/op") // of both together: says nothing
		})
	}
}

func openFor(b *testing.B, a *testenv.App) *Process {
	p, err := Open(context.Background(), a.PID, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}
