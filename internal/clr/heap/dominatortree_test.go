package heap

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// randomEdges is a random graph of some objects.
func randomEdges(rnd *rand.Rand) [][]int {
	edges := make([][]int, 1+rnd.Intn(14))
	for range rnd.Intn(3 * len(edges)) {
		from := rnd.Intn(len(edges))
		edges[from] = append(edges[from], rnd.Intn(len(edges)))
	}
	return edges
}

// TestHeads: all objects are reached from the heads, and nothing refers to the free heads.
func TestHeads(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 2000 {
		edges := randomEdges(rnd)
		free, circles, ok := madeGraph(edges).Heads(nil, goOn)
		if got, want := fmt.Sprint(append(free, circles...)), fmt.Sprint(starts(edges, nil)); got != want || !ok {
			t.Fatalf("%v: %v, not %v", edges, got, want)
		}
	}
	circle := madeGraph([][]int{{1}, {0}, {}, {4}, {3}})
	if free, circles, _ := circle.Heads([]uint32{1, 2}, goOn); free != nil || len(circles) != 1 || circles[0] != 3 {
		t.Errorf("besides roots there are %v and %v", free, circles)
	}
	edges := make([][]int, 1<<17)
	for i := range edges {
		edges[i] = []int{(i + 1) % len(edges)}
	}
	if _, _, ok := madeGraph(edges).Heads(nil, func() bool { return true }); ok {
		t.Error("it cannot be stopped")
	}
}

// TestAllLinked: a reference outside fields counts like any other reference.
func TestAllLinked(t *testing.T) {
	g := madeGraph([][]int{{1}, {}, {0}})
	g.Link(1, 2)
	g.Link(0, 2)
	var all [][]uint32
	for _, references := range g.All {
		all = append(all, slices.Clone(references))
	}
	if got := fmt.Sprint(all); got != "[[1 2] [2] [0]]" {
		t.Error(got)
	}
}

// dominator returns the immediate dominator of an object; -1: there is none. dominated has, by object, a flag for
// each dominator.
func dominator(dominated [][]bool, of int) int {
	for x, is := range dominated[of] {
		if !is || x == of {
			continue
		}
		nearest := true
		for y, too := range dominated[of] {
			nearest = nearest && (!too || y == of || dominated[x][y])
		}
		if nearest {
			return x
		}
	}
	return -1
}

// TestDominatorTree: objects are summed up by the labels of their dominators, in graphs of all densities. Objects of
// one of three classes are passed over. The objects below a passed-over object or a root lie in slots.
func TestDominatorTree(t *testing.T) {
	const passed, slot = 2, 100
	rnd := rand.New(rand.NewSource(2))
	for range 2000 {
		edges := randomEdges(rnd)
		g := madeGraph(edges)
		got := g.Retained(nil, RetainedOptions{Stopped: goOn}).Dominators(DominatorOptions{
			Class: func(o Object, _ Generation) int32 {
				n, _ := g.Number(o.Addr)
				if n%3 == passed {
					return -1
				}
				return int32(n % 3)
			},
			Slot: func(n int) int32 {
				if n%2 == 1 {
					return -1
				}
				return slot
			},
			Stopped: goOn,
		})
		if all, want := dominatorPaths(got), wantedDominators(edges, passed, slot); all != want {
			t.Fatalf("%v:\n%s\nand not\n%s", edges, all, want)
		}
	}
}

// dominatorPaths returns Dominators as text, a line for each.
func dominatorPaths(all []Dominator) string {
	lines := map[string][3]uint64{}
	paths := make([]string, len(all))
	for i, k := range all {
		if i > 0 {
			paths[i] = fmt.Sprintf("%s/%d", paths[k.Parent], k.Label)
		}
		lines[paths[i]] = [3]uint64{k.Objects.Count, k.Objects.Bytes, k.Retained}
	}
	return fmt.Sprint(lines)
}

// wantedDominators returns the expected dominatorPaths, found by leaving out one object after the other.
func wantedDominators(edges [][]int, passed, slot int) string {
	dominated := make([][]bool, len(edges))
	for y := range edges {
		dominated[y] = make([]bool, len(edges))
	}
	for x := range edges {
		for y, seen := range reach(edges, starts(edges, nil), x) {
			dominated[y][x] = !seen
		}
	}
	lines := map[string][3]uint64{"": {}}
	for n := range edges {
		if n%3 == passed {
			continue
		}
		var up []int // from the object to the root
		for at := n; at >= 0; at = dominator(dominated, at) {
			up = append(up, at)
		}
		path, last := "", -1
		for i := len(up) - 1; i >= 0; i-- {
			if up[i]%3 == passed {
				continue
			}
			if (i+1 == len(up) || up[i+1]%3 == passed) && up[i]%2 == 0 && last != slot {
				path, last = fmt.Sprintf("%s/%d", path, slot), slot
			}
			if class := up[i] % 3; class != last {
				path, last = fmt.Sprintf("%s/%d", path, class), class
			}
		}
		add := func(path string, own bool) {
			x := lines[path]
			if own {
				x[0]++
				x[1] += 8 * uint64(n+1)
			}
			x[2] += 8 * uint64(n+1)
			lines[path] = x
		}
		add(path, true)
		for i := strings.LastIndexByte(path, '/'); i >= 0; i = strings.LastIndexByte(path[:i], '/') {
			add(path[:i], false)
		}
	}
	return fmt.Sprint(lines)
}

// TestDominatorTreeBounds: a way of many classes ends at the bound, and the rest counts for the last Dominator.
func TestDominatorTreeBounds(t *testing.T) {
	const n = 10_000
	edges := make([][]int, n)
	for i := range edges[:n-1] {
		edges[i] = []int{i + 1}
	}
	g := madeGraph(edges)
	all := g.Retained(nil, RetainedOptions{Stopped: goOn}).Dominators(DominatorOptions{
		Class: func(o Object, _ Generation) int32 {
			at, _ := g.Number(o.Addr)
			return int32(at)
		},
		Stopped: goOn,
	})
	if want := uint64(8 * n * (n + 1) / 2); len(all) != deepestTree+1 || all[0].Retained != want {
		t.Errorf("%d keepers, and %d bytes, not %d", len(all), all[0].Retained, want)
	}
	if last := all[len(all)-1]; last.Objects.Count != n-deepestTree+1 {
		t.Errorf("the last has %d objects", last.Objects.Count)
	}
}
