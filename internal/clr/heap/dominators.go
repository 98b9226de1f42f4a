package heap

// An object dominates another if every way to that one leads through it: if it went away, the other could go, too. What
// an object retains is its own size and those of all that it dominates.
//
// The algorithm is Semi-NCA (L. Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005).
// Vertices are numbered in the order in which a depth-first search meets them; 0 is a root of everything.

// dominators is the search for what dominates what.
type dominators struct {
	g      *Graph
	number []uint32 // by object: its vertex; 0: not met yet
	object []uint32 // by vertex
	parent []uint32 // by vertex, in the tree of the search; shortened on the way
	semi   []uint32
	label  []uint32
	idom   []uint32

	roots []uint64 // by vertex, a bit: something that is no object keeps it
	from  []uint32 // by vertex: where in preds the vertices begin that refer to it
	preds []uint32
	path  []uint32
	ask   asking
}

// Retained is what objects retain.
type Retained struct {
	d     *dominators
	bytes []uint64 // by vertex
}

// Retained finds what each object retains. Roots are kept by something that is no object. The objects that nothing
// refers to are kept by something else, too, each by itself; so is one of each circle that nothing leads to. nil:
// stopped, which is asked from time to time, says that nobody wants to know any more.
func (g *Graph) Retained(roots []uint32, stopped func() bool) *Retained {
	n := g.count + 1
	d := &dominators{
		g: g, number: make([]uint32, g.count), object: make([]uint32, 1, n), parent: make([]uint32, 1, n),
		ask: asking{stopped: stopped}, roots: make([]uint64, n/64+1),
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
	if !d.ask.ended {
		d.collect()
		d.semidominators()
	}
	if d.ask.ended {
		return nil
	}
	r := &Retained{d: d, bytes: make([]uint64, n)}
	for v := n - 1; v > 0; v-- {
		o, _ := g.Object(int(d.object[v]))
		r.bytes[v] += o.Size
		r.bytes[d.idom[v]] += r.bytes[v]
	}
	return r
}

// search meets what can be reached from an object, depth first.
func (d *dominators) search(start uint32) {
	type frame struct {
		vertex uint32
		rest   []uint32
	}
	meet := func(object, parent uint32) frame {
		v := uint32(len(d.object))
		d.number[object] = v
		d.object = append(d.object, object)
		d.parent = append(d.parent, parent)
		return frame{v, d.g.edges(int(object))}
	}
	stack := []frame{meet(start, 0)}
	for len(stack) > 0 && !d.ask.end() {
		top := &stack[len(stack)-1]
		if len(top.rest) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		to := top.rest[0]
		top.rest = top.rest[1:]
		if to != noNode && d.number[to] == 0 {
			stack = append(stack, meet(to, top.vertex))
		}
	}
}

// collect turns the references round.
func (d *dominators) collect() {
	n := len(d.object)
	d.from = make([]uint32, n+1)
	each := func(f func(from, to uint32)) {
		for v := 1; v < n; v++ {
			for _, e := range d.g.edges(int(d.object[v])) {
				if e != noNode {
					f(uint32(v), d.number[e])
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
	copy(d.from[1:], d.from[:n]) // each has moved on to the next one's place
	d.from[0] = 0
}

func (d *dominators) semidominators() {
	n := uint32(len(d.object))
	d.semi, d.label, d.idom = make([]uint32, n), make([]uint32, n), make([]uint32, n)
	for v := range n {
		d.semi[v], d.label[v], d.idom[v] = v, v, d.parent[v]
	}
	for v := n - 1; v > 0 && v < n && !d.ask.end(); v-- {
		s := d.idom[v] // the parent
		if d.roots[v/64]>>(v%64)&1 != 0 {
			s = 0
		}
		for _, u := range d.preds[d.from[v]:d.from[v+1]] {
			if u >= v {
				u = d.eval(u, v+1)
			}
			s = min(s, d.semi[u])
		}
		d.semi[v] = s
	}
	for v := uint32(1); v < n && !d.ask.ended; v++ {
		u := d.idom[v]
		for u > d.semi[v] {
			u = d.idom[u]
		}
		d.idom[v] = u
	}
}

// eval returns the vertex with the least semidominator on the way from a vertex up to the last that has been processed:
// those from linked on.
func (d *dominators) eval(v, linked uint32) uint32 {
	if d.parent[v] < linked {
		return d.label[v]
	}
	d.path = d.path[:0]
	at := v
	for ; d.parent[at] >= linked; at = d.parent[at] {
		d.path = append(d.path, at)
	}
	top := d.parent[at]
	for i := len(d.path) - 1; i >= 0; i-- {
		x := d.path[i]
		if up := d.parent[x]; d.semi[d.label[up]] < d.semi[d.label[x]] {
			d.label[x] = d.label[up]
		}
	}
	for _, x := range d.path {
		d.parent[x] = top
	}
	return d.label[v]
}

// edges are the references of an object, with those that were added.
func (g *Graph) edges(n int) []uint32 {
	if g.links.some != nil && g.links.some[n/64]>>(n%64)&1 != 0 {
		return g.links.from[uint32(n)]
	}
	return g.fields(n)
}

// fields are the references that fields of an object hold.
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

// Of is what an object retains, in bytes.
func (r *Retained) Of(n int) uint64 { return r.bytes[r.d.number[n]] }

// ByTable sums up by MethodTable. What is retained by an object that another one of the same class dominates counts
// once. Objects that pass says are passed over: they stand for what keeps others, and are the program's no more.
func (r *Retained) ByTable(pass func(o Object, in Generation) bool) []uint64 {
	d := r.d
	out := make([]uint64, len(d.g.Tables))
	n := len(d.object)
	child, sibling := make([]uint32, n), make([]uint32, n) // in the tree of dominators; 0: none
	for v := n - 1; v > 0; v-- {
		up := d.idom[v]
		sibling[v], child[up] = child[up], uint32(v)
	}
	above := make([]uint32, len(out)) // how many dominators of a class there are
	for v := child[0]; v != 0; {
		if !pass(d.g.Object(int(d.object[v]))) {
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
			if !pass(d.g.Object(int(d.object[v]))) {
				above[r.table(v)]--
			}
			if sibling[v] != 0 {
				v = sibling[v]
				break
			}
			v = d.idom[v]
		}
	}
	return out
}

// table is the index of a vertex's MethodTable.
func (r *Retained) table(v uint32) uint32 {
	region, i := r.d.g.at(int(r.d.object[v]))
	return region.nodes[i].table
}
