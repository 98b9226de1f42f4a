package heap

import (
	"encoding/binary"
	"errors"
	"runtime/debug"
	"slices"

	"clrsnap/internal/arch"
)

// Graph has the objects of a heap and the references between the objects. An object is a number, from 0 on.
type Graph struct {
	Tables []*Table
	// Full: there were too many objects or references; the rest is missing.
	Full bool

	regions []graphRegion // by address
	kinds   []kind        // of nodes
	byKind  map[kind]uint32
	blocks  []uint32 // by object / blockSize: the object's region
	count   int
	refs    int      // references in regions
	cross   []uint32 // packed references from older objects to the youngest generation; see addLate
	links   links
	types   []uint32 // see LinkTypes; nil: not called
}

// Bounds of a graph: a graph takes 10 bytes for each object and 4 for each reference.
const (
	mostNodes = 1 << 26
	mostEdges = 1 << 28
	blockSize = 1 << 10
)

// graphRegion has the objects of a region, by address.
type graphRegion struct {
	Region
	limit arch.Addr // end of the memory that may be given to objects later
	first int       // number of its first object
	space uint32    // see Graph.pack

	// By object. The arrays are apart, so that each array can be forgotten when nobody asks for the array any more.
	at   []uint32 // in units of 8 bytes from the region's start; nil: forgotten
	ends []uint32 // where the object's references end in edges; nil: forgotten
	low  []uint16 // the lower half of an index in Graph.kinds
	high []uint16 // the upper half; nil: zero

	edges []uint32 // see Graph.pack; once the graph is complete: numbers of objects, and noNode
}

// add adds an object behind the others: where the object lies, the index of its kind, and the object's references.
func (r *graphRegion) add(at, kind uint32, edges []uint32) {
	if kind >= 1<<16 && r.high == nil {
		r.high = make([]uint16, len(r.low))
	}
	if r.high != nil {
		r.high = append(r.high, uint16(kind>>16))
	}
	r.low = append(r.low, uint16(kind))
	r.edges = append(r.edges, edges...)
	r.at, r.ends = append(r.at, at), append(r.ends, uint32(len(r.edges)))
}

// kind returns the index of an object's kind.
func (r *graphRegion) kind(i int) uint32 {
	if r.high == nil {
		return uint32(r.low[i])
	}
	return uint32(r.high[i])<<16 | uint32(r.low[i])
}

// refs returns the references in the fields of an object, with their place in edges.
func (r *graphRegion) refs(i int) []uint32 {
	switch {
	case r.ends == nil:
		return nil
	case i == 0:
		return r.edges[:r.ends[0]]
	}
	return r.edges[r.ends[i-1]:r.ends[i]]
}

// trim gives up the spare room of grown arrays.
func (r *graphRegion) trim() {
	r.at, r.ends, r.edges = slices.Clone(r.at), slices.Clone(r.ends), slices.Clone(r.edges)
	r.low, r.high = slices.Clone(r.low), slices.Clone(r.high)
}

// kind is the pair of class and size that many objects share. Objects of k sizes fill at least 4k² bytes, so there
// are few kinds.
type kind struct {
	table uint32
	size  uint32 // in units of 8 bytes
}

const noNode = ^uint32(0)

// None stands for no object.
const None = noNode

// ErrTooLarge: the heap is so large that references between objects cannot be kept.
var ErrTooLarge = errors.New("the heap has more than 32 GB: references between its objects cannot be kept")

// newGraph returns an empty graph of the objects of some regions.
func newGraph(regions []Region) (*Graph, error) {
	g := &Graph{}
	for _, r := range regions {
		limit := r.End
		if r.Generation == Gen0 {
			limit = max(r.End, r.Start+arch.Addr(r.Reserved))
		}
		g.regions = append(g.regions, graphRegion{Region: r, limit: limit})
	}
	slices.SortFunc(g.regions, func(a, b graphRegion) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	space := uint64(0)
	for i := range g.regions {
		r := &g.regions[i]
		r.space = uint32(space)
		space += uint64(r.limit-r.Start)/8 + 1
		if space >= uint64(noNode) {
			return nil, ErrTooLarge
		}
	}
	return g, nil
}

// find returns the region of an address.
func (g *Graph) find(at arch.Addr) *graphRegion {
	i, found := slices.BinarySearchFunc(g.regions, at, func(r graphRegion, at arch.Addr) int {
		switch {
		case r.limit <= at:
			return -1
		case r.Start > at:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &g.regions[i]
}

// pack packs an object's address into four bytes; nil: no object can lie at the address.
func (g *Graph) pack(at arch.Addr) (uint32, *graphRegion) {
	r := g.find(at)
	if r == nil || at%8 != 0 {
		return 0, nil
	}
	return r.space + uint32((at-r.Start)/8), r
}

// unpack returns the number of the object at a packed address; noNode: there is no object.
func (g *Graph) unpack(packed uint32) uint32 {
	r := g.locate(packed)
	if r == nil {
		return noNode
	}
	return r.number(packed)
}

// number is unpack for an address in the region.
func (r *graphRegion) number(packed uint32) uint32 {
	n, found := slices.BinarySearch(r.at, packed-r.space)
	if !found {
		return noNode
	}
	return uint32(r.first + n)
}

// draft collects the nodes and edges of a piece, for a walker.
type draft struct {
	nodes []draftNode
	edges []uint32
}

// draftNode is a node before the graph accepts it.
type draftNode struct {
	kind
	at    uint32 // as in graphRegion
	edges uint32 // end of the node's edges in draft.edges
}

// indexOf returns the index of a kind in kinds.
func (g *Graph) indexOf(of kind) uint32 {
	k, ok := g.byKind[of]
	if !ok {
		if g.byKind == nil {
			g.byKind = map[kind]uint32{}
		}
		k = uint32(len(g.kinds))
		g.byKind[of] = k
		g.kinds = append(g.kinds, of)
	}
	return k
}

// table returns the index of the MethodTable of an object of a region.
func (g *Graph) table(r *graphRegion, i int) uint32 { return g.kinds[r.kind(i)].table }

// complete numbers the objects, and turns the edges into numbers.
func (g *Graph) complete(tables []*Table) {
	g.Tables = tables
	for i := range g.regions {
		r := &g.regions[i]
		r.trim()
		r.first = g.count
		for n := len(g.blocks) * blockSize; n < g.count+len(r.low); n += blockSize {
			g.blocks = append(g.blocks, uint32(i))
		}
		g.count += len(r.low)
	}
	g.byKind = nil
	defer g.release()
	for i := range g.regions {
		for j, e := range g.regions[i].edges {
			g.regions[i].edges[j] = g.unpack(e)
		}
	}
}

// release returns freed memory to the system if there is much: freed small pieces are of no use for the large arrays
// that follow.
func (g *Graph) release() {
	if g.count >= 1<<20 {
		debug.FreeOSMemory()
	}
}

// accept adds a piece of a region.
func (g *Graph) accept(r *Region, d *draft) {
	to := g.find(r.Start)
	if to == nil || to.Start != r.Start || len(d.nodes) == 0 {
		return
	}
	if g.count+len(d.nodes) > mostNodes {
		g.Full = true
		return
	}
	g.count += len(d.nodes)
	g.refs += len(d.edges)
	from := uint32(0)
	for i := range d.nodes {
		n := &d.nodes[i]
		to.add(n.at, g.indexOf(n.kind), d.edges[from:n.edges])
		from = n.edges
	}
}

// Len returns the number of objects.
func (g *Graph) Len() int { return g.count }

// at returns the region of an object, and the object's index in the region.
func (g *Graph) at(n int) (*graphRegion, int) {
	i := 0
	if b := n / blockSize; b < len(g.blocks) {
		i = int(g.blocks[b])
	}
	for ; i < len(g.regions); i++ {
		if r := &g.regions[i]; n < r.first+len(r.low) {
			return r, n - r.first
		}
	}
	return nil, 0
}

// Object describes an object. The address is 0 once forgotten: see RetainedOptions.Last.
func (g *Graph) Object(n int) (o Object, in Generation) {
	r, i := g.at(n)
	if r == nil {
		return Object{}, 0
	}
	return g.object(r, i), r.Generation
}

// size returns the size of an object in bytes.
func (g *Graph) size(n int) uint64 {
	r, i := g.at(n)
	return 8 * uint64(g.kinds[r.kind(i)].size)
}

func (g *Graph) object(r *graphRegion, i int) Object {
	k := g.kinds[r.kind(i)]
	o := Object{Table: g.Tables[k.table], Size: 8 * uint64(k.size)}
	if r.at != nil {
		o.Addr = r.Start + 8*arch.Addr(r.at[i])
	}
	return o
}

// References calls a function with each object that an object refers to, once for each reference.
func (g *Graph) References(n int, f func(to int)) {
	for _, e := range g.edges(n) {
		if e != noNode {
			f(int(e))
		}
	}
}

// Slots calls a function with each object that an array of references refers to, and with the address of the
// reference. Slots covers only arrays that were allocated so that they never move.
func (g *Graph) Slots(n int, f func(at arch.Addr, to int)) {
	o, in := g.Object(n)
	if in != Pinned || !o.Table.slots() {
		return
	}
	fields := g.fields(n)
	if g.types != nil && g.types[o.Table.Index] != noNode {
		fields = fields[:len(fields)-1]
	}
	for i, e := range fields {
		if e != noNode {
			f(o.Addr+arch.Addr(o.Table.references.series[0].start)+8*arch.Addr(i), int(e))
		}
	}
}

// Number returns the number of the object that begins at an address; false: no object begins at the address.
func (g *Graph) Number(at arch.Addr) (int, bool) {
	packed, in := g.pack(at)
	if in == nil {
		return 0, false
	}
	n := g.unpack(packed)
	return int(n), n != noNode
}

// Of calls a function with each object of a generation whose class is chosen.
func (g *Graph) Of(in Generation, chosen func(*Table) bool, f func(n int)) {
	want := make([]bool, len(g.Tables))
	for i, t := range g.Tables {
		want[i] = chosen(t)
	}
	for i := range g.regions {
		r := &g.regions[i]
		if r.Generation != in {
			continue
		}
		for j := range r.low {
			if want[g.table(r, j)] {
				f(r.first + j)
			}
		}
	}
}

// links are references outside fields: references of handles.
type links struct {
	some []uint64 // a bit for each object with links
	from map[uint32][]uint32
}

// Link adds a reference that no field holds: as long as from is there, from keeps to.
func (g *Graph) Link(from, to int) {
	l := &g.links
	if l.from == nil {
		l.from, l.some = map[uint32][]uint32{}, make([]uint64, g.count/64+1)
	}
	if l.some[from/64]>>(from%64)&1 == 0 {
		l.some[from/64] |= 1 << (from % 64)
		l.from[uint32(from)] = slices.Clone(g.fields(from))
	}
	l.from[uint32(from)] = append(l.from[uint32(from)], uint32(to))
}

// LinkTypes adds references that no field holds: each object of a table keeps one object, or None. Call LinkTypes
// before Link.
func (g *Graph) LinkTypes(keeps []uint32) {
	g.types = keeps
	for i := range g.regions {
		r := &g.regions[i]
		more := 0
		for j := range r.low {
			if keeps[g.table(r, j)] != noNode {
				more++
			}
		}
		if more == 0 {
			continue
		}
		edges, from := make([]uint32, 0, len(r.edges)+more), uint32(0)
		for j, end := range r.ends {
			edges = append(edges, r.edges[from:end]...)
			from = end
			if to := keeps[g.table(r, j)]; to != noNode {
				edges = append(edges, to)
			}
			r.ends[j] = uint32(len(edges))
		}
		r.edges = edges
	}
}

// ByType reports whether an object keeps another object because of its type, and no field refers to the other object.
func (g *Graph) ByType(from, to int) bool {
	r, i := g.at(from)
	if r == nil || g.types == nil || g.types[g.table(r, i)] != uint32(to) {
		return false
	}
	fields := g.fields(from)
	return !slices.Contains(fields[:len(fields)-1], uint32(to))
}

// Linked reports whether Link has added a reference, and no field holds the reference.
func (g *Graph) Linked(from, to int) bool {
	fields := g.fields(from)
	return !slices.Contains(fields, uint32(to)) && slices.Contains(g.edges(from), uint32(to))
}

// note keeps an object, and the object's references that lead to the heap.
func (w *walker) note(i, size uint64, k *known, p *piece) error {
	d := w.draft
	at := w.base + arch.Addr(i)
	t := w.tables.at(int(k.index))
	if l := t.references; l != nil {
		var err error
		all := p.slots && t.slots()
		l.each(size, func(from, n uint64) {
			if err == nil {
				err = w.refer(p, at+arch.Addr(from), n, all)
			}
		})
		if err != nil {
			return err
		}
	}
	d.nodes = append(d.nodes, draftNode{
		kind: kind{uint32(k.index), uint32(size / 8)}, at: uint32((at - p.start) / 8), edges: uint32(len(d.edges)),
	})
	return nil
}

// refer keeps a run of references of a piece; all: also references that lead nowhere.
func (w *walker) refer(p *piece, at arch.Addr, n uint64, all bool) error {
	for n > 0 {
		data := w.data
		off := uint64(at - w.base)
		if off+n > uint64(len(data)) { // of a large array that was not read
			piece := min(n, uint64(maxData))
			if w.stopped() {
				return errStopped
			}
			if w.far == nil {
				w.far = make([]byte, maxData)
			}
			data, off = w.far[:piece], 0
			if err := w.mem.ReadMemory(data, at); err != nil {
				return err
			}
		}
		step := min(n, uint64(len(data))-off)
		for j := off; j+8 <= off+step; j += 8 {
			v := binary.LittleEndian.Uint64(data[j:])
			if v == 0 && !all {
				continue
			}
			e, to := w.graph.pack(arch.Addr(v))
			switch {
			case to == nil && !all:
				continue
			case to == nil:
				e = noNode
			case !p.newest && to.Generation == Gen0 && len(w.graph.cross) < maxCross:
				w.graph.cross = append(w.graph.cross, e)
			}
			if w.graph.refs+len(w.draft.edges) >= mostEdges {
				w.graph.Full = true
				return nil
			}
			w.draft.edges = append(w.draft.edges, e)
		}
		at, n = at+arch.Addr(step), n-step
	}
	return nil
}
