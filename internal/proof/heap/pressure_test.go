package heap

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestPressure reads heaps that change as fast as possible: by allocation at full speed, by endless collections of
// all kinds, and by growth of 100 MB a second; with one heap, with eight, and with a collector that moves objects
// whenever possible. Each look ends soon, and no object has a wrong type. In the consistent part nothing is missing
// and nothing counts twice. With a stop the heap is the heap of one moment.
func TestPressure(t *testing.T) {
	layer.Proof(t)
	for name, env := range map[string][]string{
		"workstation": nil,
		"server":      append(moreCPUs(t, 8), "DOTNET_gcServer=1", "DOTNET_GCHeapCount=8", "DOTNET_GCNoAffinitize=1"),
		"compacting":  {"DOTNET_GCConserveMemory=9", "DOTNET_gcConcurrent=0"},
	} {
		t.Run(name, func(t *testing.T) { testPressure(t, env, name == "server") })
	}
}

func testPressure(t *testing.T, env []string, server bool) {
	a := testenv.Start(t, "heap", testenv.Options{Env: env, Args: []string{"--megabytes", "30"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	a.Ask("collect")
	pr := &pressure{t: t, p: p, want: truth(t, a)}
	pr.want["Shop.Filler"] = snapshot.HeapAmount{Count: 300_000, Bytes: 300_000 * 40}
	for _, kind := range [][2]string{{"churn 2", "rest"}, {"storm 3", "calm"}, {"grow 100", "calm"}} {
		a.Ask(kind[0])
		pr.under(kind[0])
		t.Logf("%s: %q", kind[0], a.Ask(kind[1]))
	}
	if h := take(t, p, clrsnap.HeapOptions{}); server && h.Heaps() != 8 {
		t.Errorf("%d heaps", h.Heaps())
	}
	livetest.EndsWell(t, a)
}

// pressure looks at a program under pressure.
type pressure struct {
	t    *testing.T
	p    *clrsnap.Process
	want map[string]snapshot.HeapAmount
}

// under looks many times, every second time with a stop.
func (pr *pressure) under(what string) {
	pr.t.Helper()
	share, stops, exact, torn, unfinished := 0.0, 0, 0, 0, 0
	var pause, slowest time.Duration
	looks := layer.Size(10, 1000)
	for i := range looks {
		stop := i%2 == 1
		h := take(pr.t, pr.p, clrsnap.HeapOptions{Stop: stop, MaxPause: time.Minute})
		slowest = max(slowest, h.Duration)
		if wrong := wrongTypes(h); len(wrong) > 0 {
			pr.t.Errorf("%s, stop %v: objects of %q", what, stop, wrong)
		}
		d := differing(h, pr.want)
		if stop {
			d = append(d, unlike(h)...)
		}
		switch {
		case stop && h.Stop.Exact:
			exact++
			pause = max(pause, h.Stop.Pause)
			unfinished += h.Stop.Unfinished
			if len(d) > 0 || h.ConsistentShare != 1 {
				pr.t.Errorf("%s, at one moment: other numbers of %q; %.3f consistent: %+v", what, d,
					h.ConsistentShare, h.Stop)
			}
		case !stop && h.ConsistentShare == 1 && len(d) > 0:
			pr.t.Errorf("%s: other numbers of %q, though all is consistent", what, d)
		case !stop:
			share += h.ConsistentShare
			if len(d) > 0 {
				torn++
			}
		}
		if stop {
			stops++
			if !h.Stop.Exact {
				pr.t.Logf("%s: %+v", what, h.Stop)
			}
		}
	}
	pr.t.Logf("%s: without a stop %.3f consistent on average, and in %d of %d looks numbers differ; with a stop %d of "+
		"%d of one moment, pause %v at most, %d unfinished; slowest look %v", what, share/float64(looks-stops), torn,
		looks-stops, exact, stops, pause, unfinished, slowest)
	if 2*exact < stops {
		pr.t.Errorf("%s: only %d of %d looks with a stop were of one moment", what, exact, stops)
	}
}

// unlike compares the grains of a growing heap with their seals: a seal for each thousand grains. The relation holds
// only at one moment: during a read, the collector can put a new seal into free space, and the read meets the seal
// there.
func unlike(h *snapshot.Heap) (names []string) {
	all := amounts(h)
	grains, seals := all["Shop.Grain"].Count, all["Shop.Seal[]"].Count
	if d := int64(grains) - 1000*int64(seals); d < -int64(unfinished(h)) || d > 1000 {
		names = append(names, fmt.Sprintf("Shop.Grain: %d, and %d seals", grains, seals))
	}
	return names
}

func unfinished(h *snapshot.Heap) int {
	if h.Stop == nil {
		return 0
	}
	return h.Stop.Unfinished
}

// TestExhausted: after the longest allowed pause, threads go on, the heap is read without a stop, and the result
// says so.
func TestExhausted(t *testing.T) {
	layer.Proof(t)
	a := testenv.Start(t, "heap", testenv.Options{Args: []string{"--megabytes", "100"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	const limit = 10 * time.Millisecond
	late := 0 // a busy machine: the pause was used up before the last thread had stopped
	for range 5 {
		h := take(t, p, clrsnap.HeapOptions{Stop: true, MaxPause: limit, MaxCPU: 1})
		for ; h.Stop.Needed == 0 && late < 20; late++ {
			t.Logf("not all threads have stopped: %+v", h.Stop)
			h = take(t, p, clrsnap.HeapOptions{Stop: true, MaxPause: limit, MaxCPU: 1})
		}
		if h.Stop.Exact || !strings.Contains(h.Stop.Reason, "may be stopped for 10ms") || h.ConsistentShare != 1 {
			t.Errorf("%+v, %.3f consistent", h.Stop, h.ConsistentShare)
		}
		if s := h.Stop; s.Needed <= limit || s.Pause <= 0 {
			t.Errorf("%+v", s)
		}
		t.Logf("stopped for %v of %v, %v are needed", h.Stop.Pause, limit, h.Stop.Needed)
		if d := differing(h, truth(t, a)); len(d) > 0 {
			t.Errorf("other numbers of %q", d)
		}
	}
	livetest.EndsWell(t, a)
}
