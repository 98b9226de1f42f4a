package heap

import (
	"iter"
	"slices"
)

// Paths are the shortest ways to objects. A way begins at an object that something outside the heap keeps, or at an
// object that nothing on the heap refers to. The heap does not tell why the second object lives, or whether it is
// dead.
type Paths struct {
	g      *Graph
	parent []uint32 // by object; noNode: not reached
	ask    asking
	queue  []uint32 // the met objects, in the order of the visit; once the search is over: memory for near
	near   []uint32 // by object: another object on the way, nearer to the way's beginning; nil: not asked for yet
	// How many objects are reached from the first group, and from all groups: the beginnings of queue.
	sure, kept int
}

// Paths finds the shortest ways to all objects: first from the objects of the first group, then from the objects of
// the next group, and so on. An object that is reached from one group, by however long a way, is not looked for from
// the later groups. The last group are the objects that nothing refers to. Paths calls progress from time to time
// with the share done, from 0 to 1; nil: no calls. Paths also calls stopped from time to time, and returns nil once
// stopped reports that nobody wants the paths any more.
func (g *Graph) Paths(groups [][]uint32, progress func(done float64), stopped func() bool) *Paths {
	p := &Paths{
		g: g, parent: make([]uint32, g.count), queue: make([]uint32, 0, g.count),
		ask: asking{stopped: stopped, progress: progress, steps: float64(g.count)},
	}
	for i := range p.parent {
		p.parent[i] = noNode
	}
	for i, starts := range groups {
		p.spread(slices.Values(starts))
		if i == 0 {
			p.sure = len(p.queue)
		}
	}
	p.kept = len(p.queue)
	p.spread(g.free())
	if p.ask.ended {
		return nil
	}
	return p
}

// asking asks now and then whether to end early, and reports progress.
type asking struct {
	stopped  func() bool
	progress func(done float64) // nil: nobody is told
	steps    float64            // calls of end, in all
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

// referred returns a bit for each object that another object refers to.
func (g *Graph) referred() []uint64 {
	out := make([]uint64, g.count/64+1)
	for i := range g.regions {
		r := &g.regions[i]
		for j := range r.low {
			for _, e := range r.refs(j) {
				if e != noNode && int(e) != r.first+j {
					out[e/64] |= 1 << (e % 64)
				}
			}
		}
	}
	for n := range g.links.from {
		g.References(int(n), func(to int) {
			if to != int(n) {
				out[to/64] |= 1 << (to % 64)
			}
		})
	}
	return out
}

// spread visits all objects that can be reached from some objects, breadth first. A start is its own parent.
func (p *Paths) spread(starts iter.Seq[uint32]) {
	next := len(p.queue)
	for n := range starts {
		p.meet(n, n)
	}
	for ; next < len(p.queue) && !p.ask.end(); next++ {
		n := p.queue[next]
		for _, to := range p.g.edges(int(n)) {
			if to != noNode {
				p.meet(to, n)
			}
		}
	}
}

// meet puts an object into the queue, once.
func (p *Paths) meet(n, parent uint32) {
	if p.parent[n] == noNode {
		p.parent[n] = parent
		p.queue = append(p.queue, n)
	}
}

// Reach is how far the ways lead to the objects of one class.
type Reach struct {
	Count int    // objects that are reached
	Steps uint32 // references on the longest way
	To    int    // an object at the end of the longest way
}

// Reaches returns the Reach of each class, by the index of its Table: from the first group alone, from all groups, and
// also from the objects that nothing refers to. Call Reaches before To.
func (p *Paths) Reaches() (first, known, all []Reach) {
	all = make([]Reach, len(p.g.Tables))
	steps := make([]uint32, len(p.parent))
	for k, n := range p.queue {
		if k == p.sure {
			first = slices.Clone(all)
		}
		if k == p.kept {
			known = slices.Clone(all)
		}
		if up := p.parent[n]; up != n {
			steps[n] = steps[up] + 1
		}
		region, i := p.g.at(int(n))
		r := &all[p.g.table(region, i)]
		if r.Count++; r.Count == 1 || steps[n] > r.Steps {
			r.Steps, r.To = steps[n], int(n)
		}
	}
	if first == nil { // nothing comes behind the first group
		first = slices.Clone(all)
	}
	if known == nil {
		known = slices.Clone(all)
	}
	return first, known, all
}

// Kept reports whether an object is reached from any group. Call Kept before To.
func (p *Paths) Kept(n int) bool { return slices.Contains(p.queue[:p.kept], uint32(n)) }

// Way is the way to an object.
type Way struct {
	Objects []int // the object first, then the object that refers to it, and so on
	Gap     int   // index of the object behind the gap, if the way has too many objects; 0: no gap
	Whole   bool  // nothing refers to the last object; false: only a circle leads to the object
}

// To returns the way to an object. The way has at most the given number of objects, and the two objects at the
// beginning.
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

// first returns the object on the way to n that the beginning of the way refers to. first keeps its results, so that
// long ways with common parts are not followed again and again.
func (p *Paths) first(n int) int {
	if p.near == nil {
		p.near, p.queue = append(p.queue[:0], p.parent...), nil
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
