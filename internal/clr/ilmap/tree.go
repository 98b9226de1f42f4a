package ilmap

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// A Tree has the methods inlined into a method's code, and their places. The runtime keeps a Tree for code that is
// compiled with DOTNET_RichDebugInfo=1.
type Tree struct {
	Nodes  []TreeNode  // the first node is the method itself
	Points []TreePoint // by ascending native offset
}

// TreeNode is an inlined method.
type TreeNode struct {
	Method arch.Addr // MethodDesc
	Parent int       // index of the calling node; -1 for the root
	IL     uint32    // of the call, or of the call's statement, in the parent's IL
}

// TreePoint is the beginning of the code of a statement.
type TreePoint struct {
	Native uint32 // bytes from the start of the code
	Node   int
	IL     uint32 // bytes from the start of the node's IL, or NoMapping, Prolog or Epilog
}

// At returns the last point at or before a native offset; false: there is none.
func (t *Tree) At(native uint32) (TreePoint, bool) {
	i, _ := slices.BinarySearchFunc(t.Points, uint64(native)+1, func(p TreePoint, at uint64) int {
		if uint64(p.Native) < at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return TreePoint{}, false
	}
	return t.Points[i-1], true
}

// Tree reads the tree of c's method; nil: the runtime keeps none.
func (r *Reader) Tree(c *codemap.Code) (*Tree, error) {
	info, err := r.code.DebugInfo(c)
	if err != nil || info.At == 0 {
		return nil, err
	}
	form, err := r.formOf(&info)
	if err != nil {
		return nil, err
	}
	at, size, err := r.richAt(info.At, form)
	if err != nil || size == 0 {
		return nil, err
	}
	b, err := r.mem.Bytes(at, int(size))
	if err != nil {
		return nil, err
	}
	return decodeTree(b)
}

// richAt returns the address and the length of the inlined methods: before the header, or behind a fat header.
func (r *Reader) richAt(at arch.Addr, f form) (arch.Addr, uint32, error) {
	switch {
	case f.extra:
		e, err := r.extra(at)
		return e.rich, e.richSize, err
	case !f.fat:
		return 0, 0, nil
	}
	h, err := r.header(at, f)
	if err != nil || h.rich == 0 {
		return 0, 0, err
	}
	if h.size > maxBounds || h.vars > maxVariables || h.rich > maxRich {
		return 0, 0, corrupt("%d bytes of rich debug info at %v", h.rich, at)
	}
	return at + arch.Addr(h.at) + arch.Addr(h.size) + arch.Addr(h.vars) + arch.Addr(h.async-h.rich), h.rich, nil
}

// maxTree bounds the nodes, and the points, of one method.
const maxTree = 1 << 16

// decodeTree reads the recorded tree (debuginfostore.cpp, DoInlineTreeNodes and DoRichOffsetMappings): the counts of
// nodes and points; for each node the MethodDesc and, as distances from the node before, the IL offset, the index of
// the first child and the index of the next sibling; for each point the native offset, the node, the IL offset,
// likewise, and flags.
func decodeTree(b []byte) (*Tree, error) {
	r := nibbles{b: b}
	nodes, points := r.number(), r.number()
	if r.bad || nodes == 0 || nodes > maxTree || points > maxTree || uint64(nodes)*8+uint64(points)*2 > uint64(len(b)) {
		return nil, corrupt("a tree of %d inlined methods and %d points in %d bytes", nodes, points, len(b))
	}
	t := &Tree{Nodes: make([]TreeNode, nodes), Points: make([]TreePoint, 0, points)}
	child, sibling := make([]uint32, nodes), make([]uint32, nodes)
	il, lastChild, lastSibling := uint32(Prolog), uint32(0), uint32(0)
	for i := range t.Nodes {
		n := &t.Nodes[i]
		n.Method, n.Parent = arch.Addr(r.plain())|arch.Addr(r.plain())<<32, -1
		il += uint32(r.signed())
		lastChild += uint32(r.signed())
		lastSibling += uint32(r.signed())
		n.IL, child[i], sibling[i] = il, lastChild, lastSibling
	}
	if r.bad {
		return nil, corrupt("the tree of inlined methods ends early")
	}
	if err := t.link(child, sibling); err != nil {
		return nil, err
	}
	native, node, il := uint32(0), uint32(0), uint32(Prolog)
	for range points {
		native += r.number()
		node += uint32(r.signed())
		il += uint32(r.signed())
		r.number()
		if r.bad || node >= nodes || len(t.Points) > 0 && native < t.Points[len(t.Points)-1].Native {
			return nil, corrupt("point %d of a tree of inlined methods", len(t.Points))
		}
		t.Points = append(t.Points, TreePoint{native, int(node), il})
	}
	return t, nil
}

// link sets the nodes' parents: each node leads to its first child, and the child to its next sibling.
func (t *Tree) link(child, sibling []uint32) error {
	visited := 1
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		parent := queue[0]
		for next := child[parent]; next != 0; next = sibling[next] {
			if int64(next) >= int64(len(t.Nodes)) || t.Nodes[next].Parent >= 0 {
				return corrupt("node %d of a tree of inlined methods leads to %d of %d", parent, next, len(t.Nodes))
			}
			t.Nodes[next].Parent = parent
			queue = append(queue, int(next))
			visited++
		}
	}
	if visited != len(t.Nodes) {
		return corrupt("%d of %d nodes in a tree of inlined methods", visited, len(t.Nodes))
	}
	return nil
}

// plain reads 32 bits, the low bits first.
func (r *nibbles) plain() (v uint32) {
	for i := range 8 {
		if r.at/2 >= len(r.b) {
			r.bad = true
			return 0
		}
		v |= uint32(r.b[r.at/2]>>(4*(r.at%2))&0xf) << (4 * i)
		r.at++
	}
	return v
}
