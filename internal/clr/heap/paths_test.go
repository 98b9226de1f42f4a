package heap

import (
	"slices"
	"testing"
)

// A way that is too long to be kept keeps its beginning: it is no circle.
func TestLongWay(t *testing.T) {
	edges := make([][]int, 5000)
	for n := range len(edges) - 1 {
		edges[n] = []int{n + 1}
	}
	ways := madeGraph(edges).Paths(none, goOn)
	for _, tt := range []struct {
		n, gap int
		want   []int
	}{
		{4999, 3, []int{4999, 4998, 4997, 1, 0}}, {6, 3, []int{6, 5, 4, 1, 0}}, {5, 3, []int{5, 4, 3, 1, 0}},
		{4, 0, []int{4, 3, 2, 1, 0}}, {3, 0, []int{3, 2, 1, 0}}, {0, 0, []int{0}},
	} {
		for range 2 {
			if w := ways.To(tt.n, 3); !w.Whole || w.Gap != tt.gap || !slices.Equal(w.Objects, tt.want) {
				t.Errorf("to %d: %+v, want %v", tt.n, w, tt.want)
			}
		}
	}
}

// Whoever does not want to know any more need not wait.
func TestGraphStopped(t *testing.T) {
	edges := make([][]int, 200_000)
	for n := range len(edges) - 1 {
		edges[n] = []int{n + 1}
	}
	g, asked := madeGraph(edges), 0
	stopped := func() bool { asked++; return true }
	if g.Paths(none, stopped) != nil || g.Retained(stopped) != nil || asked != 2 {
		t.Errorf("it went on, and asked %d times", asked)
	}
}
