package heap

import (
	"slices"
	"testing"
)

// A way that is too long to be kept keeps its beginning, and does not count as a circle.
func TestLongWay(t *testing.T) {
	edges := make([][]int, 5000)
	for n := range len(edges) - 1 {
		edges[n] = []int{n + 1}
	}
	ways := madeGraph(edges).Paths(nil, nil, goOn)
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

// A caller that wants no more need not wait.
func TestGraphStopped(t *testing.T) {
	edges := make([][]int, 200_000)
	for n := range len(edges) - 1 {
		edges[n] = []int{n + 1}
	}
	g, asked := madeGraph(edges), 0
	stopped := func() bool { asked++; return true }
	if g.Paths(nil, nil, stopped) != nil || g.Retained(nil, RetainedOptions{Stopped: stopped}) != nil || asked != 2 {
		t.Errorf("it went on, and asked %d times", asked)
	}
}

// TestPathGroups: an object within the reach of the first group, by however long a way, is not looked for from the
// next group. Objects that nothing refers to come last. A reference outside fields leads on like others.
func TestPathGroups(t *testing.T) {
	g := madeGraph([][]int{0: {1}, 1: {2}, 2: {3}, 3: nil, 4: {3, 5}, 5: nil, 6: {5, 7}, 7: {8}, 8: {7},
		9: {10}, 10: {9}})
	g.Link(3, 9)
	ways := g.Paths([][]uint32{{0}, {4, 0}}, nil, goOn)
	for n, want := range map[int][]int{
		3: {3, 2, 1, 0}, 4: {4}, 5: {5, 4}, 8: {8, 7, 6}, 10: {10, 9, 3, 2, 1, 0},
	} {
		if w := ways.To(n, 100); !w.Whole || !slices.Equal(w.Objects, want) {
			t.Errorf("to %d: %+v, want %v", n, w, want)
		}
	}
	if !g.Linked(3, 9) || g.Linked(2, 3) || g.Linked(9, 3) {
		t.Error("only one reference was added")
	}
	if ways = g.Paths(nil, nil, goOn); !ways.To(8, 100).Whole {
		t.Error("8 is reached from what nothing refers to")
	}
	if n, ok := g.Number(0x10000 + 8*7); !ok || n != 7 {
		t.Error(n, ok)
	}
	if _, ok := g.Number(0x10004); ok {
		t.Error("no object begins there")
	}
}

// TestReaches: only what the first group leads to counts, by the shortest way.
func TestReaches(t *testing.T) {
	g := madeGraph([][]int{0: {1, 3}, 1: {2}, 2: {3}, 3: {4}, 4: nil, 5: {6}, 6: {7}, 7: {8}, 8: nil})
	ways := g.Paths([][]uint32{{0}, {5}}, nil, goOn)
	want := []Reach{{Count: 2, Steps: 1, To: 3}, {Count: 2, Steps: 2, To: 4}, {Count: 1, Steps: 2, To: 2}}
	got, known, all := ways.Reaches()
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if known[2].Count != 3 || known[2].Steps != 3 || !slices.Equal(known, all) {
		t.Errorf("%+v, and %+v", known, all)
	}
	if _, known, all := g.Paths([][]uint32{{0}}, nil, goOn).Reaches(); known[2].Count != 1 || all[2].Count != 3 {
		t.Error("nothing refers to 5")
	}
	if g.Paths([][]uint32{{0}}, nil, goOn).Kept(6) || !ways.Kept(2) || !ways.Kept(6) {
		t.Error("6 is kept by the second group alone")
	}
}
