package heap

// An object dominates another object if every way to the other object leads through it. If the dominator went away,
// the other object could go, too. An object retains its own size and the sizes of all objects that it dominates.
//
// The algorithm is Semi-NCA (L. Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005).
// Vertices are numbered in the order of a depth-first search; 0 is a root of everything.

// All data is in arrays. The search has three arrays with four bytes an object. Afterwards there are at most five, and
// four bytes for each reference outside the tree of the search. An array without further use serves the next step.

// dominators is the search for the dominators.
type dominators struct {
	g      *Graph
	number []uint32 // by object: the object's vertex; 0: not met yet
	above  []uint32 // by object: the parent in the tree of the search; noNode: the search began here
	met    uint32   // objects met
	object []uint32 // by vertex
	parent []uint32 // by vertex, in the tree of the search; eval shortens the ways
	least  []uint32 // by vertex: the least semidominator on the shortened way
	idom   []uint32

	roots []uint64 // by vertex, a bit: something outside the heap's objects keeps the vertex
	// First, by object: the number of references that the search has followed. Then, by vertex: the index in preds
	// where the vertex's predecessors begin, without the parent. Once a vertex is done, the entry of the next vertex
	// has the semidominator of the vertex.
	from  []uint32
	preds []uint32
	path  []uint32
	ask   asking
}

// Retained has the bytes that objects retain.
type Retained struct {
	g      *Graph
	object []uint32 // by vertex
	idom   []uint32
	bytes  []uint64
}

// RetainedOptions control Graph.Retained. The zero value is valid.
type RetainedOptions struct {
	// Last: nobody asks for references and addresses any more. Retained forgets both.
	Last bool
	// Progress is called from time to time with the share done, from 0 to 1; nil: no calls.
	Progress func(done float64)
	// Stopped is called from time to time, and reports whether to end early.
	Stopped func() bool
}

// Retained finds the bytes that each object retains. Something outside the heap keeps the roots. Something outside
// also keeps every object that nothing refers to, each by itself, and one object of each circle that nothing leads
// to. nil: the search was stopped.
func (g *Graph) Retained(roots []uint32, o RetainedOptions) *Retained {
	n := g.count + 1
	if o.Last {
		g.forgetAddresses()
		g.release()
	}
	d := &dominators{
		g: g, number: make([]uint32, n), above: make([]uint32, n), from: make([]uint32, n+1),
		roots: make([]uint64, n/64+1),
		ask:   asking{stopped: o.Stopped, progress: o.Progress, steps: 4 * float64(n)},
	}
	for _, root := range roots {
		if d.number[root] == 0 {
			d.search(root)
		}
		v := d.number[root]
		d.roots[v/64] |= 1 << (v % 64)
	}
	for i := range g.free() {
		if d.number[i] == 0 {
			d.search(i)
		}
	}
	for i := range g.count {
		if d.number[i] == 0 {
			d.search(uint32(i))
		}
	}
	d.collect()
	if d.ask.ended {
		return nil
	}
	if o.Last {
		g.forgetReferences()
		g.release()
	}
	d.arrange()
	d.semidominators()
	if d.ask.ended {
		return nil
	}
	r := &Retained{g: g, object: d.object, idom: d.idom}
	*d = dominators{} // its memory is needed
	g.release()
	r.bytes = make([]uint64, n)
	for v := n - 1; v > 0; v-- {
		r.bytes[v] += g.size(int(r.object[v]))
		r.bytes[r.idom[v]] += r.bytes[v]
	}
	return r
}

// forgetReferences frees the memory of all references.
func (g *Graph) forgetReferences() {
	g.links, g.types = links{}, nil
	for i := range g.regions {
		g.regions[i].ends, g.regions[i].edges = nil, nil
	}
}

// forgetAddresses frees the memory of all addresses.
func (g *Graph) forgetAddresses() {
	for i := range g.regions {
		g.regions[i].at = nil
	}
}

// search visits all objects that can be reached from an object, depth first.
func (d *dominators) search(start uint32) {
	d.meet(start, noNode)
	for n := start; n != noNode && !d.ask.ended; {
		edges := d.g.edges(int(n))
		i := d.from[n]
		for int(i) < len(edges) && (edges[i] == noNode || d.number[edges[i]] != 0) {
			i++
		}
		if int(i) == len(edges) {
			n = d.above[n]
			continue
		}
		d.from[n] = i + 1
		d.meet(edges[i], n)
		n = edges[i]
	}
}

// meet makes an object a vertex.
func (d *dominators) meet(object, above uint32) {
	d.met++
	d.number[object], d.above[object] = d.met, above
	d.ask.end()
}

// collect reverses the references. References from parents are left out: semidominators knows the parents.
func (d *dominators) collect() {
	if d.ask.ended {
		return
	}
	clear(d.from)
	each := func(f func(from, to uint32)) {
		for o := uint32(0); int(o) < d.g.count && !d.ask.end(); o++ {
			for _, e := range d.g.edges(int(o)) {
				if e != noNode && e != o && d.above[e] != o {
					f(d.number[o], d.number[e])
				}
			}
		}
	}
	each(func(_, to uint32) { d.from[to]++ })
	sum := uint32(0)
	for v := range d.from {
		d.from[v], sum = sum, sum+d.from[v]
	}
	d.preds = make([]uint32, sum)
	each(func(from, to uint32) {
		d.preds[d.from[to]] = from
		d.from[to]++
	})
	copy(d.from[1:], d.from[:d.g.count+1]) // each entry has moved on to the next entry's beginning
	d.from[0] = 0
}

// arrange turns the tree of the search into arrays by vertex.
func (d *dominators) arrange() {
	n := d.g.count + 1
	d.object, d.parent = make([]uint32, n), make([]uint32, n)
	for o, v := range d.number[:d.g.count] {
		d.object[v] = uint32(o)
		if up := d.above[o]; up != noNode {
			d.parent[v] = d.number[up]
		}
	}
	d.number, d.least, d.above, d.idom = nil, d.number, nil, d.above
}

func (d *dominators) semidominators() {
	n := uint32(len(d.object))
	copy(d.idom, d.parent)
	for v := range n {
		d.least[v] = v
	}
	for v := n - 1; v > 0 && v < n && !d.ask.end(); v-- {
		s := d.idom[v] // the parent
		if d.roots[v/64]>>(v%64)&1 != 0 {
			s = 0
		}
		for _, u := range d.preds[d.from[v]:d.from[v+1]] {
			if u > v {
				u = d.eval(u, v+1)
			}
			s = min(s, u)
		}
		d.least[v], d.from[v+1] = s, s
	}
	for v := uint32(1); v < n && !d.ask.ended; v++ {
		u := d.idom[v]
		for u > d.from[v+1] {
			u = d.idom[u]
		}
		d.idom[v] = u
	}
}

// eval returns the least semidominator on the way from a vertex up to the last vertex that is done. The vertices from
// linked on are done.
func (d *dominators) eval(v, linked uint32) uint32 {
	d.path = d.path[:0]
	at := v
	for ; d.parent[at] >= linked; at = d.parent[at] {
		d.path = append(d.path, at)
	}
	top := d.parent[at]
	for i := len(d.path) - 1; i >= 0; i-- {
		x := d.path[i]
		d.least[x] = min(d.least[x], d.least[d.parent[x]])
	}
	for _, x := range d.path {
		d.parent[x] = top
	}
	return d.least[v]
}

// edges returns the references of an object, with the added ones.
func (g *Graph) edges(n int) []uint32 {
	if g.links.some != nil && g.links.some[n/64]>>(n%64)&1 != 0 {
		return g.links.from[uint32(n)]
	}
	return g.fields(n)
}

// fields returns the references in an object's fields.
func (g *Graph) fields(n int) []uint32 {
	r, i := g.at(n)
	if r == nil {
		return nil
	}
	return r.refs(i)
}

// ByTable sums up by MethodTable. If an object of the same class dominates an object, the bytes count once. ByTable
// passes over the objects that pass chooses: these objects hold others for the runtime, and are no objects of the
// program.
func (r *Retained) ByTable(pass func(o Object, in Generation) bool) []uint64 {
	out := make([]uint64, len(r.g.Tables))
	n := len(r.object)
	child, sibling := make([]uint32, n), make([]uint32, n) // in the tree of dominators; 0: none
	for v := n - 1; v > 0; v-- {
		up := r.idom[v]
		sibling[v], child[up] = child[up], uint32(v)
	}
	above := make([]uint32, len(out)) // by class: the number of dominators above v
	for v := child[0]; v != 0; {
		if !pass(r.g.Object(int(r.object[v]))) {
			t := r.table(v)
			if above[t] == 0 {
				out[t] += r.bytes[v]
			}
			above[t]++
		}
		if child[v] != 0 {
			v = child[v]
			continue
		}
		for v != 0 {
			if !pass(r.g.Object(int(r.object[v]))) {
				above[r.table(v)]--
			}
			if sibling[v] != 0 {
				v = sibling[v]
				break
			}
			v = r.idom[v]
		}
	}
	return out
}

// table returns the index of a vertex's MethodTable.
func (r *Retained) table(v uint32) uint32 {
	region, i := r.g.at(int(r.object[v]))
	return r.g.table(region, i)
}
