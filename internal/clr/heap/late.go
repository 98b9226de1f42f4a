package heap

import (
	"slices"

	"clrsnap/internal/arch"
)

// Objects that are made while the heap is walked
//
// The walk begins with the youngest generation. So an older object can refer to a young object that was made later: a
// new delegate replaces the delegate of an event whenever somebody subscribes. Without the young object, all objects
// behind it would seem to have no keeper. So the walk afterwards reads the unmet objects of the youngest generation
// that older objects refer to, and the unmet objects behind them in the generation. The result counts if there has
// been no collection meanwhile.

// Bounds of late objects: their number, and the number of references to them.
const (
	maxLate  = 1 << 16
	maxCross = 1 << 20
)

// lateEnds are the bytes to read from an object on, in the order of the attempts: the rest of the region may be in no
// memory yet.
var lateEnds = []arch.Addr{64 << 10, 4 << 10, 256}

// addLate adds late objects to a graph that is not complete yet.
func (w *walk) addLate(g *Graph) {
	if w.o.Still || len(g.cross) == 0 {
		return
	}
	found := map[uint32]*draft{}
	for want := g.cross; len(want) > 0 && len(found) < maxLate && !w.stopped(); {
		e := want[len(want)-1]
		want = want[:len(want)-1]
		if _, met := found[e]; met || !g.unmet(e) {
			continue
		}
		found[e] = w.late(g, e)
		if d := found[e]; d != nil {
			want = append(want, d.edges...)
		}
	}
	if !w.quiet(w.begun) {
		return
	}
	g.insert(found)
	for e, d := range found {
		if d != nil {
			w.sheet.acceptLate(g.locate(e), &d.nodes[0])
		}
	}
}

// acceptLate counts a late object.
func (s *sheet) acceptLate(r *graphRegion, n *draftNode) {
	one := Tally{Count: 1, Bytes: 8 * uint64(n.size)}
	s.count(int(n.table), r.Generation, one)
	p := s.part(&r.Region)
	p.Objects.add(one)
	if r.Start+8*arch.Addr(n.at) < r.End { // in memory that a thread had been given, and had not used
		p.Unused -= min(p.Unused, one.Bytes)
	}
}

// late reads the object at a packed address; nil: there is no object.
func (w *walk) late(g *Graph, packed uint32) *draft {
	r := g.locate(packed)
	at := r.Start + 8*arch.Addr(packed-r.space)
	one := w.workers[0]
	for _, n := range lateEnds {
		one.reset()
		p := piece{at: at, stop: at + 8, start: r.Start, end: min(at+n, r.limit), newest: true}
		if err := one.walk(&p); err == nil && len(one.draft.nodes) == 1 {
			return one.draft
		}
	}
	return nil
}

// locate returns the region of a packed address.
func (g *Graph) locate(packed uint32) *graphRegion {
	i, found := slices.BinarySearchFunc(g.regions, packed, func(r graphRegion, packed uint32) int {
		switch {
		case r.space > packed:
			return 1
		case packed-r.space > uint32((r.limit-r.Start)/8):
			return -1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &g.regions[i]
}

// unmet reports whether a packed address lies in the youngest generation, and the walk met no object there.
func (g *Graph) unmet(packed uint32) bool {
	r := g.locate(packed)
	return r != nil && r.Generation == Gen0 && r.number(packed) == noNode
}

// insert adds unmet objects, by packed address.
func (g *Graph) insert(found map[uint32]*draft) {
	by := map[*graphRegion][]uint32{}
	for e, d := range found {
		if d != nil {
			r := g.locate(e)
			by[r] = append(by[r], e)
		}
	}
	for r, late := range by {
		slices.Sort(late)
		old := *r
		r.at, r.ends, r.low, r.high, r.edges = nil, nil, nil, nil, nil
		add := func(d *draft) { r.add(d.nodes[0].at, g.indexOf(d.nodes[0].kind), d.edges) }
		for i, at := range old.at {
			for len(late) > 0 && late[0]-r.space < at {
				add(found[late[0]])
				late = late[1:]
			}
			r.add(at, old.kind(i), old.refs(i))
		}
		for _, e := range late {
			add(found[e])
		}
	}
}
