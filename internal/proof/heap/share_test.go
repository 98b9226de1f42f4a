package heap

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// BenchmarkShare measures the share of a heap that can be proved to be consistent, in percent, of all and of each
// generation, while two threads only allocate: with one heap, and with two. It also reports the duration and the
// cost of a look.
//
//	go test -run '^$' -bench Share -benchtime 100x -tags proof ./internal/proof/heap
func BenchmarkShare(b *testing.B) {
	layer.Quiet(b)
	for _, c := range []struct {
		name string
		env  []string
	}{{"workstation", nil}, {"server", []string{"DOTNET_gcServer=1", "DOTNET_GCHeapCount=2"}}} {
		for _, pressure := range []string{"churn 2", "storm 1"} {
			b.Run(c.name+"/"+strings.ReplaceAll(pressure, " ", "-"), func(b *testing.B) {
				benchmarkShare(b, c.env, pressure)
			})
		}
	}
}

func benchmarkShare(b *testing.B, env []string, pressure string) {
	a := testenv.Start(b, "heap", testenv.Options{Env: env, Args: []string{"--megabytes", "30"}})
	p := livetest.Open(b, a, clrsnap.Options{})
	a.Ask("collect")
	a.Ask(pressure)
	time.Sleep(200 * time.Millisecond)
	var all float64
	var size, consistent [snapshot.Generations]uint64
	used := live.OwnCPU()
	for b.Loop() {
		h, err := p.Heap(b.Context(), clrsnap.HeapOptions{})
		if err != nil {
			b.Fatal(err)
		}
		all += h.ConsistentShare
		for i := range h.Parts {
			x := &h.Parts[i]
			size[x.Generation] += x.Size
			consistent[x.Generation] += x.ConsistentBytes
		}
	}
	n := float64(b.N)
	b.ReportMetric(100*all/n, "%")
	for g := range size {
		if size[g] > 0 {
			b.ReportMetric(100*float64(consistent[g])/float64(size[g]), fmt.Sprintf("%%%v", snapshot.Generation(g)))
		}
	}
	b.ReportMetric(float64(live.OwnCPU()-used)/n/1e6, "ms-CPU/op")
}
