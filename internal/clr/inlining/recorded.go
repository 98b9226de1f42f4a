package inlining

import (
	"slices"

	"clrsnap/internal/clr/ilmap"
)

// Recorded returns the methods that were inlined between a method and the callee of the method's call that ends
// before a native offset, by the recorded tree: outermost first.
//
// The tree has the statement of each piece of code. But the call may come from another statement: the compiler moves
// a call into a statement that uses the call's result, even between a method and a method inlined into it. So the
// node that the tree names counts only if its IL can call callee. Else all nodes with such IL count. If there are
// several, only the nodes around all of them are certain.
func (r *Reader) Recorded(t *ilmap.Tree, native uint32, callee Definition) ([]Frame, error) {
	called, err := r.node(callee)
	if err != nil || called.helper {
		return nil, err
	}
	nodes := make([]*node, len(t.Nodes))
	var calling []int
	for i := range t.Nodes {
		d, ok, err := r.Definition(t.Nodes[i].Method)
		if err != nil || !ok {
			return nil, corrupt("%v was inlined, but is no method (%v)", t.Nodes[i].Method, err)
		}
		if nodes[i], err = r.node(d); err != nil {
			return nil, err
		}
		if err := r.work.take(len(nodes[i].il) + 1); err != nil {
			return nil, err
		}
		if nodes[i].calls(called) {
			calling = append(calling, i)
		}
	}
	if len(calling) == 0 {
		return nil, nil
	}
	p, ok := t.At(native - 1)
	if ok && slices.Contains(calling, p.Node) {
		calling = []int{p.Node}
	}
	certain := path(t, calling[0])
	for _, i := range calling[1:] {
		certain = common(certain, path(t, i))
	}
	out := frames(t, nodes, certain)
	if last := len(out) - 1; last >= 0 && len(calling) == 1 {
		out[last].IL, out[last].HasIL = nodes[calling[0]].onlyCall(called)
		if !out[last].HasIL && ok && p.Node == calling[0] {
			out[last].IL, out[last].HasIL = p.IL, p.IL < ilmap.Epilog
		}
	}
	return out, nil
}

// onlyCall returns the place of the only call in n's IL that can call callee; false: there are several such calls.
func (n *node) onlyCall(callee *node) (at uint32, ok bool) {
	for i := range n.il {
		if !n.il[i].may(callee) {
			continue
		}
		if ok {
			return 0, false
		}
		at, ok = n.il[i].at, true
	}
	return at, ok
}

// callAt returns the place of the call in n's IL that was inlined: the only call that can call callee, or the first
// such call from the recorded place on, which is the beginning of a statement. The compiler of .NET 11 records
// uninitialised memory for some inlined methods; false: no such call is there.
func (n *node) callAt(callee *node, recorded uint32) (at uint32, ok bool) {
	if at, ok = n.onlyCall(callee); ok {
		return at, true
	}
	for i := range n.il {
		if s := &n.il[i]; s.at >= recorded && s.may(callee) && (!ok || s.at < at) {
			at, ok = s.at, true
		}
	}
	return at, ok
}

// calls reports whether IL of n can call callee.
func (n *node) calls(callee *node) bool {
	return !n.known || slices.ContainsFunc(n.il, func(s site) bool { return s.may(callee) })
}

// path returns the nodes from below the root to a node.
func path(t *ilmap.Tree, to int) []int {
	var out []int
	for i := to; t.Nodes[i].Parent >= 0; i = t.Nodes[i].Parent {
		out = append(out, i)
	}
	slices.Reverse(out)
	return out
}

// common returns the common beginning of two paths.
func common(a, b []int) []int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// frames describes the nodes of a path, each at its call of the next node.
func frames(t *ilmap.Tree, nodes []*node, path []int) []Frame {
	var out []Frame
	for k, i := range path {
		f := Frame{Definition: nodes[i].def, Desc: t.Nodes[i].Method}
		if k+1 < len(path) {
			f.IL, f.HasIL = nodes[i].callAt(nodes[path[k+1]], t.Nodes[path[k+1]].IL)
		}
		out = append(out, f)
	}
	return out
}
