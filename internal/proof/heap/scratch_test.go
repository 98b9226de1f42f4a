package heap

import (
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
)

func TestScratch(t *testing.T) {
	layer.Proof(t)
	for _, env := range [][]string{nil, {"DOTNET_gcServer=1", "DOTNET_GCHeapCount=8", "DOTNET_PROCESSOR_COUNT=8", "DOTNET_GCNoAffinitize=1"}} {
		a := testenv.Start(t, "heap", testenv.Options{Env: env, Args: []string{"--megabytes", "60"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		look := func(stop bool) {
			before := a.Ask("total")[1]
			h, err := p.Heap(t.Context(), clrsnap.HeapOptions{Stop: stop})
			if err != nil {
				t.Fatal(err)
			}
			n := uint64(0)
			for i := range h.Types {
				if h.Types[i].Name == "Shop.Filler" {
					n = h.Types[i].Count
				}
			}
			g := h.Generation(profile.Gen2)
			t.Logf("heaps %d fillers %d consistent %.3f gen2 %.3f stop %+v passes gcs %s %s dur %v", h.Heaps(), n, h.ConsistentShare, float64(g.ConsistentBytes)/float64(g.Size+1), h.Stop, before, a.Ask("total")[1], h.Duration)
		}
		look(false)
		a.Ask("churn 2")
		for i := range 40 {
			look(i%4 == 3)
		}
	}
}
