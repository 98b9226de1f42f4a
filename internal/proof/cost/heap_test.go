package cost

import (
	"context"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/heapwalk"
	"clrsnap/internal/livetest"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
)

// BenchmarkHeap walks all objects of a program with 1 GB of objects, 20 million. The floor copies the same memory, in
// blocks of the same size, without a look at the contents. Both are CPU time. Aims: 1 s, and 150 MB of resident memory
// of the command. The pause is how long all threads stand still on request.
func BenchmarkHeap(b *testing.B) {
	command := livetest.Command(b)
	a := testenv.Start(b, "heap", testenv.Options{Args: []string{"--megabytes", "1000"}})
	p, err := session.Open(context.Background(), a.PID, session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	var walks, floors, pauses samples
	var objects, consistent float64
	for b.Loop() {
		begin := live.OwnCPU()
		h, err := heapwalk.Heap(context.Background(), p, heapwalk.Options{})
		if err != nil {
			b.Fatal(err)
		}
		walks = append(walks, live.OwnCPU()-begin)
		objects, consistent = float64(h.Objects().Count), h.ConsistentShare
		begin = live.OwnCPU()
		copyHeap(b, p)
		floors = append(floors, live.OwnCPU()-begin)
		if h, err = heapwalk.Heap(context.Background(), p, heapwalk.Options{Stop: true}); err != nil || !h.Stop.Exact {
			b.Fatalf("%v, %+v", err, h)
		}
		pauses = append(pauses, h.Stop.Pause)
	}
	report(b, walks, floors, "walk-ms", "floor-ms", time.Millisecond)
	b.ReportMetric(walks.at(0)/objects, "walk-ns-object-min")
	b.ReportMetric(consistent, "consistent")
	b.ReportMetric(float64(pauses.at(0))/1e6, "pause-ms-min")
	_, rss := timed(b, exec.Command(command, "heap", "--json", strconv.Itoa(a.PID)))
	b.ReportMetric(float64(rss)/1024, "resident-MB")
}

// copyHeap copies all memory of the heap.
func copyHeap(b *testing.B, p *session.Process) {
	b.Helper()
	r, err := heap.New(p.Live, p.Engine.Layout)
	if err != nil {
		b.Fatal(err)
	}
	regions, err := r.Regions()
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 512<<10)
	for _, region := range regions {
		for at := region.Start; at < region.End; at += arch.Addr(len(block)) {
			if err := p.Live.ReadMemory(block[:min(len(block), int(region.End-at))], at); err != nil {
				b.Fatal(err)
			}
		}
	}
}
