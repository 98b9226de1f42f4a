package heap

import "iter"

// Heads returns objects that lead to all objects outside the reach of the roots: free are the objects that nothing on
// the heap refers to; circles has one object of each circle that nothing else leads to. Heads calls stopped from time
// to time. ok is false if stopped reported that nobody wants the result any more.
func (g *Graph) Heads(roots []uint32, stopped func() bool) (free, circles []uint32, ok bool) {
	s := visit{g: g, met: make([]uint64, g.count/64+1), ask: asking{stopped: stopped}}
	for _, n := range roots {
		s.from(n)
	}
	for n := range g.free() {
		if s.met[n/64]>>(n%64)&1 == 0 {
			free = append(free, n)
			s.from(n)
		}
	}
	for n := range uint32(g.count) {
		if s.met[n/64]>>(n%64)&1 == 0 {
			circles = append(circles, n)
			s.from(n)
		}
	}
	return free, circles, !s.ask.ended
}

// free yields the objects that nothing on the heap refers to.
func (g *Graph) free() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		referred := g.referred()
		for n := range uint32(g.count) {
			if referred[n/64]>>(n%64)&1 == 0 && !yield(n) {
				return
			}
		}
	}
}

// visit visits objects by references.
type visit struct {
	g     *Graph
	met   []uint64 // a bit for each object
	stack []uint32
	ask   asking
}

// from meets all objects that can be reached from an object.
func (s *visit) from(n uint32) {
	s.meet(n)
	for len(s.stack) > 0 && !s.ask.end() {
		last := len(s.stack) - 1
		n, s.stack = s.stack[last], s.stack[:last]
		for _, to := range s.g.edges(int(n)) {
			if to != noNode {
				s.meet(to)
			}
		}
	}
}

func (s *visit) meet(n uint32) {
	if s.met[n/64]>>(n%64)&1 == 0 {
		s.met[n/64] |= 1 << (n % 64)
		s.stack = append(s.stack, n)
	}
}

// All yields all objects, by number, with the numbers of the objects that they refer to, by a field or a Link. The
// numbers are valid until the next object.
func (g *Graph) All(yield func(o Object, references []uint32) bool) {
	var list []uint32
	for i := range g.regions {
		r := &g.regions[i]
		for j := range r.low {
			list = list[:0]
			edges := r.refs(j)
			if g.links.some != nil {
				edges = g.edges(r.first + j)
			}
			for _, e := range edges {
				if e != noNode {
					list = append(list, e)
				}
			}
			if !yield(g.object(r, j), list) {
				return
			}
		}
	}
}

// Regions returns the regions with objects, by address.
func (g *Graph) Regions() (out []Region) {
	for i := range g.regions {
		if r := &g.regions[i]; len(r.low) > 0 {
			out = append(out, r.Region)
		}
	}
	return out
}
