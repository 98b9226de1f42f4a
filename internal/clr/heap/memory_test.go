package heap

import (
	"math/rand"
	"runtime"
	"testing"

	"clrsnap/internal/arch"
)

// Of the graph in TestMemory: objects, and references of two objects together.
const (
	memoryObjects = 1 << 20
	memoryPairs   = 3
)

// randomGraph is a list of many objects. Every other object also refers to any object.
func randomGraph() *Graph {
	rnd := rand.New(rand.NewSource(1))
	g := &Graph{Tables: []*Table{{}, {}}, count: memoryObjects}
	end := arch.Addr(0x10000 + 8*memoryObjects)
	r := graphRegion{Region: Region{Segment: Segment{Start: 0x10000, End: end}}, limit: end}
	for n := range uint32(memoryObjects) {
		refs := []uint32{min(n+1, memoryObjects-1)}
		if n%2 == 0 {
			refs = append(refs, uint32(rnd.Intn(memoryObjects)))
		}
		r.add(n, g.indexOf(kind{n % 2, 3}), refs)
	}
	r.trim()
	g.regions = []graphRegion{r}
	return g
}

// liveBytes returns the bytes of the process's memory that are in use.
func liveBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory: the searches in a graph with 1.5 references an object never use more than so many bytes for each object,
// the graph included. The bytes are counted, so the machine's speed makes no difference.
//
// A graph: 10 bytes, and 4 a reference. Paths: 8 more. Retained, without the addresses: 12 more than the graph, and 4
// for each reference outside the tree of the search; the sums: an object's kind, and 24 bytes.
func TestMemory(t *testing.T) {
	const (
		graph    = 10 + 4*memoryPairs/2
		slack    = 1 // bits, and the rest of the process
		paths    = graph + 8 + slack
		retained = graph - 4 + 12 + 2 + slack
	)
	before := liveBytes()
	peak := func(what string, most uint64, do func(look func(float64))) {
		t.Helper()
		used, looks := uint64(0), 0
		do(func(float64) {
			used = max(used, liveBytes()-before)
			looks++
		})
		if looks < 10 {
			t.Errorf("%s: %d looks", what, looks)
		}
		if t.Logf("%s: %.2f bytes an object", what, float64(used)/memoryObjects); used > most*memoryObjects {
			t.Errorf("%s: %.2f bytes an object, not at most %d", what, float64(used)/memoryObjects, most)
		}
	}
	peak("paths", paths, func(look func(float64)) {
		p := randomGraph().Paths([][]uint32{{0}}, look, goOn)
		way := p.To(memoryObjects-1, 2)
		if look(1); !way.Whole || way.Gap != 2 || len(way.Objects) != 4 {
			t.Error(way)
		}
		runtime.KeepAlive(p)
	})
	peak("retained", retained, func(look func(float64)) {
		r := randomGraph().Retained([]uint32{0}, RetainedOptions{Last: true, Progress: look, Stopped: goOn})
		looked := false
		all := r.ByTable(func(Object, Generation) bool {
			if !looked {
				looked = true
				look(1)
			}
			return false
		})
		if all[0] != 24*memoryObjects { // the first object keeps all
			t.Error(all)
		}
	})
}

// TestKinds: a graph can have more kinds of objects than 16 bits count, and tells them apart.
func TestKinds(t *testing.T) {
	const many = 1<<16 + 1000
	g := &Graph{Tables: []*Table{{}}, count: many}
	r := graphRegion{Region: Region{Segment: Segment{Start: 0x10000, End: 0x10000 + 8*many}}}
	for n := range uint32(many) {
		r.add(n, g.indexOf(kind{0, n + 3}), nil)
	}
	r.trim()
	g.regions = []graphRegion{r}
	for n := range many {
		if o, _ := g.Object(n); o.Size != 8*uint64(n+3) || o.Addr != 0x10000+8*arch.Addr(n) {
			t.Fatal(n, o)
		}
	}
}
