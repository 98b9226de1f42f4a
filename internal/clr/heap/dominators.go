package heap

// An object dominates another object if every way to the other object leads through it. If the dominator went away,
// the other object could go, too. An object retains its own size and the sizes of all objects that it dominates.
//
// The algorithm is Semi-NCA (L. Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005).
// Vertices are numbered in the order of a depth-first search; 0 is a root of everything.

// All data is in arrays: at most five arrays with four bytes a vertex at a time, and one array with four bytes a
// reference. An array without further use serves the next step.

// dominators is the search for the dominators.
type dominators struct {
	g      *Graph
	number []uint32 // by object: the object's vertex; 0: not met yet
	object []uint32 // by vertex
	parent []uint32 // by vertex, in the tree of the search; eval shortens the ways
	least  []uint32 // by vertex: the least semidominator on the shortened way
	idom   []uint32

	roots []uint64 // by vertex, a bit: something outside the heap's objects keeps the vertex
	// By vertex: first the number of references that the search has followed, then the index in preds where the
	// vertex's predecessors begin. Once a vertex is done, the entry of the next vertex has the semidominator of the
	// vertex.
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
	// Last: nobody asks for references any more. Retained forgets the references.
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
	d := &dominators{
		g: g, number: make([]uint32, n), object: make([]uint32, 1, n), parent: make([]uint32, n),
		from: make([]uint32, n+1), roots: make([]uint64, n/64+1),
		ask: asking{stopped: o.Stopped, progress: o.Progress, steps: 4 * float64(n)},
	}
	for _, root := range roots {
		if d.number[root] == 0 {
			d.search(root)
		}
		v := d.number[root]
		d.roots[v/64] |= 1 << (v % 64)
	}
	referred := (&Paths{g: g}).referred()
	for i := range g.count {
		if referred[i/64]>>(i%64)&1 == 0 && d.number[i] == 0 {
			d.search(uint32(i))
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
		g.forget()
	}
	d.number, d.least = nil, d.number
	g.release()
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

// forget frees the memory of all references.
func (g *Graph) forget() {
	g.links, g.types = links{}, nil
	for i := range g.regions {
		r := &g.regions[i]
		r.edges = nil
		for j := range r.nodes {
			r.nodes[j].edges = 0
		}
	}
}

// search visits all objects that can be reached from an object, depth first.
func (d *dominators) search(start uint32) {
	d.meet(start, 0)
	for v := d.number[start]; v != 0 && !d.ask.ended; {
		edges := d.g.edges(int(d.object[v]))
		i := d.from[v]
		for int(i) < len(edges) && (edges[i] == noNode || d.number[edges[i]] != 0) {
			i++
		}
		if int(i) == len(edges) {
			v = d.parent[v]
			continue
		}
		d.from[v] = i + 1
		v = d.meet(edges[i], v)
	}
}

// meet makes an object a vertex.
func (d *dominators) meet(object, parent uint32) uint32 {
	v := uint32(len(d.object))
	d.number[object] = v
	d.object = append(d.object, object)
	d.parent[v] = parent
	d.ask.end()
	return v
}

// collect reverses the references.
func (d *dominators) collect() {
	if d.ask.ended {
		return
	}
	n := len(d.object)
	clear(d.from)
	each := func(f func(from, to uint32)) {
		for o := 0; o < d.g.count && !d.ask.end(); o++ {
			for _, e := range d.g.edges(o) {
				if e != noNode {
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
	copy(d.from[1:], d.from[:n]) // each entry has moved on to the next entry's beginning
	d.from[0] = 0
}

func (d *dominators) semidominators() {
	n := uint32(len(d.object))
	d.idom = make([]uint32, n)
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
	from := uint32(0)
	if i > 0 {
		from = r.nodes[i-1].edges
	}
	return r.edges[from:r.nodes[i].edges]
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
	return r.g.table(&region.nodes[i])
}
