package heap

import "slices"

// Paths are the shortest ways by which objects are reached. Objects that something else keeps begin them, and those
// that nothing on the heap refers to: what keeps such an object, or whether nothing does, the heap does not say.
type Paths struct {
	g      *Graph
	parent []uint32 // by object; noNode: it is not reached
	ask    asking
	near   []uint32 // by object: another one on the way to it, nearer to its beginning; nil: not asked for yet
}

// Paths finds the shortest ways to all objects, from those of the first group, then to others from those of the next
// one, and so on: an object that is reached from one group, by however long a way, is not looked for from the others.
// The last group are the objects that nothing refers to. progress is called from time to time with how far it has come,
// from 0 to 1; nil: it is not. nil: stopped, which is asked from time to time, says that nobody wants them any more.
func (g *Graph) Paths(groups [][]uint32, progress func(done float64), stopped func() bool) *Paths {
	p := &Paths{
		g: g, parent: make([]uint32, g.count),
		ask: asking{stopped: stopped, progress: progress, steps: float64(g.count)},
	}
	for i := range p.parent {
		p.parent[i] = noNode
	}
	for _, starts := range groups {
		p.spread(starts)
	}
	p.spread(g.Free())
	if p.ask.ended {
		return nil
	}
	return p
}

// asking asks now and then whether to end early, and says how far it has come.
type asking struct {
	stopped  func() bool
	progress func(done float64) // nil: nobody is told
	steps    float64            // how often end is asked in all
	n        uint32
	ended    bool
}

func (a *asking) end() bool {
	if a.n++; !a.ended && a.n%(1<<16) == 0 {
		a.ended = a.stopped()
		if a.progress != nil {
			a.progress(min(1, float64(a.n)/a.steps))
		}
	}
	return a.ended
}

// referred has a bit for each object that another one refers to.
func (p *Paths) referred() []uint64 {
	out := make([]uint64, p.g.count/64+1)
	for i := range p.g.regions {
		r := &p.g.regions[i]
		from := uint32(0)
		for j := range r.nodes {
			for _, e := range r.edges[from:r.nodes[j].edges] {
				if e != noNode && int(e) != r.first+j {
					out[e/64] |= 1 << (e % 64)
				}
			}
			from = r.nodes[j].edges
		}
	}
	for n := range p.g.links.from {
		p.g.References(int(n), func(to int) {
			if to != int(n) {
				out[to/64] |= 1 << (to % 64)
			}
		})
	}
	return out
}

// spread reaches what can be reached from some objects, breadth first. A start is its own parent.
func (p *Paths) spread(starts []uint32) {
	queue := make([]uint32, 0, len(starts))
	for _, n := range starts {
		if p.parent[n] == noNode {
			p.parent[n] = n
			queue = append(queue, n)
		}
	}
	var next []uint32
	for len(queue) > 0 {
		for _, n := range queue {
			if p.ask.end() {
				return
			}
			p.g.References(int(n), func(to int) {
				if p.parent[to] == noNode {
					p.parent[to] = n
					next = append(next, uint32(to))
				}
			})
		}
		queue, next = next, queue[:0]
	}
}

// Way is how an object is reached.
type Way struct {
	Objects []int // itself first, then the one that refers to it, and so on
	Gap     int   // in front of Objects[Gap] others are left out, because they are too many; 0: none are
	Whole   bool  // nothing refers to the last one; false: only a circle leads to the object
}

// To returns the way to an object, with so many others and the two at its beginning at most.
func (p *Paths) To(n, most int) (w Way) {
	for {
		up := p.parent[n]
		if len(w.Objects) >= most && up != noNode && int(up) != n {
			if first := p.first(n); first != n {
				w.Gap = len(w.Objects)
				n = first
			}
			w.Objects = append(w.Objects, n, int(p.parent[n]))
			w.Whole = true
			return w
		}
		w.Objects = append(w.Objects, n)
		if up == noNode || int(up) == n {
			w.Whole = up != noNode
			return w
		}
		n = int(up)
	}
}

// first returns the object on the way to another one that the beginning of the way refers to. What was found on the
// way is kept, so that long ways that have much in common are not followed again and again.
func (p *Paths) first(n int) int {
	if p.near == nil {
		p.near = slices.Clone(p.parent)
		for i, up := range p.parent {
			if up != noNode && p.parent[up] == up {
				p.near[i] = uint32(i)
			}
		}
	}
	at := uint32(n)
	for p.near[at] != at {
		p.near[at] = p.near[p.near[at]]
		at = p.near[at]
	}
	return int(at)
}
