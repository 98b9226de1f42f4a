package heap

import (
	"math/rand"
	"runtime"
	"slices"
	"testing"
)

// madeGraph is a graph of objects. Object n has the size 8(n+1) and one of three classes, and refers to edges[n].
func madeGraph(edges [][]int) *Graph {
	g := &Graph{Tables: []*Table{{}, {}, {}}, count: len(edges)}
	r := graphRegion{
		Region: Region{Segment: Segment{Start: 0x10000, End: 0x10000 + 8*0x10000}}, limit: 0x10000 + 8*0x10000,
	}
	for n, to := range edges {
		refs := make([]uint32, len(to))
		for i, e := range to {
			refs[i] = uint32(e)
		}
		r.add(uint32(n), g.indexOf(kind{uint32(n % 3), uint32(n + 1)}), refs)
	}
	g.regions = []graphRegion{r}
	return g
}

// reach marks the objects that can be reached from some objects without one object.
func reach(edges [][]int, from []int, without int) []bool {
	seen := make([]bool, len(edges))
	for queue := from; len(queue) > 0; {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if n == without || seen[n] {
			continue
		}
		seen[n] = true
		queue = append(append([]int{}, queue...), edges[n]...)
	}
	return seen
}

// starts returns the roots, then the objects that nothing else refers to, and then the first of the objects out of
// their reach.
func starts(edges [][]int, roots []uint32) (out []int) {
	for _, n := range roots {
		out = append(out, int(n))
	}
	referred := make([]bool, len(edges))
	for n, to := range edges {
		for _, e := range to {
			referred[e] = referred[e] || e != n
		}
	}
	for n := range edges {
		if !referred[n] {
			out = append(out, n)
		}
	}
	for {
		seen, more := reach(edges, out, -1), false
		for n := range seen {
			if !seen[n] {
				out, more = append(out, n), true
				break
			}
		}
		if !more {
			return out
		}
	}
}

// TestRetained: an object retains the objects that cannot be reached without the object. The test leaves out one
// object after the other, in graphs of all densities, with and without roots. Some references are not in fields.
func TestRetained(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 2000 {
		n := 1 + rnd.Intn(14)
		edges := make([][]int, n)
		for range rnd.Intn(3 * n) {
			from := rnd.Intn(n)
			edges[from] = append(edges[from], rnd.Intn(n))
		}
		g := madeGraph(edges)
		for range rnd.Intn(3) {
			from, to := rnd.Intn(n), rnd.Intn(n)
			g.Link(from, to)
			edges[from] = append(edges[from], to)
		}
		var roots []uint32
		for range rnd.Intn(3) {
			roots = append(roots, uint32(rnd.Intn(n)))
		}
		r := g.Retained(roots, RetainedOptions{Stopped: goOn, Last: rnd.Intn(2) == 0})
		from := starts(edges, roots)
		byTable := make([]uint64, 3)
		dominates := make([][]bool, n) // by object: the objects that it dominates, and itself
		for x := range n {
			seen := reach(edges, from, x)
			dominates[x] = make([]bool, n)
			want := uint64(0)
			for y := range n {
				if dominates[x][y] = !seen[y]; !seen[y] {
					want += 8 * uint64(y+1)
				}
			}
			if got := of(r, x); got != want {
				t.Fatalf("%v, from %d: %d retains %d bytes, not %d", edges, roots, x, got, want)
			}
		}
		for x := range n {
			first := true
			for y := range n {
				first = first && !(y != x && y%3 == x%3 && dominates[y][x])
			}
			if first {
				byTable[x%3] += of(r, x)
			}
		}
		for i, got := range r.ByTable(none) {
			if got != byTable[i] {
				t.Fatalf("%v: class %d retains %d bytes, not %d", edges, i, got, byTable[i])
			}
		}
	}
}

// of returns the bytes that an object retains.
func of(r *Retained, n int) uint64 { return r.bytes[slices.Index(r.object[1:], uint32(n))+1] }

func none(Object, Generation) bool { return false }

func goOn() bool { return false }

// A list of many objects, forwards and backwards, takes neither long nor a deep stack. All allocations are five
// arrays of four bytes and one of eight bytes an object, and four bytes a reference outside the tree of the search.
func TestRetainedList(t *testing.T) {
	const n = 300_000
	edges := make([][]int, n)
	for i := range edges {
		edges[i] = []int{max(i-1, 0), min(i+1, n-1)}
	}
	g := madeGraph(edges)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := g.Retained(nil, RetainedOptions{Stopped: goOn})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > n*(5*4+8+4)+1<<20 {
		t.Errorf("%d bytes were allocated for each of %d objects", took/n, n)
	}
	if got := of(r, 0); got != 8*n*(n+1)/2 {
		t.Errorf("the first retains %d bytes", got)
	}
	second := func(o Object, _ Generation) bool { return o.Addr == 0x10000 }
	if got := r.ByTable(second)[1]; got != of(r, 1) {
		t.Errorf("without the first, the second retains %d bytes, not %d", got, of(r, 1))
	}
	if r.ByTable(none)[0] != of(r, 0) {
		t.Error(r.ByTable(none))
	}
}
