package profile

import (
	"cmp"
	"slices"
)

// Calls is a tree of calls of one mode of a recording: of the callers of some functions, of their callees, or of
// everything. Functions that a reader could not tell apart are one function, as in Totals. A function that calls
// itself directly is one call.
type Calls struct {
	Mode    Mode
	All     Part // of all samples of the mode
	Matched Part // of the samples in the tree; each sample counts once
	// List has the calls in preorder: the tree of a call precedes the trees of its siblings. Of calls with one parent
	// the heaviest comes first.
	List []Call
	// Cut is set if the tree is incomplete: the whole tree would have too many calls or levels.
	Cut bool
}

// Call is a function in a tree of calls.
type Call struct {
	Function int32 // index in Recording.Functions
	Parent   int32 // in Calls.List: the callee in a tree of callers, else the caller; -1: none
	End      int32 // of its tree in Calls.List, exclusive
	Total    Part  // of the samples with these calls on their stacks
	Self     Part  // of the samples that end here; not in a tree of callers
}

// Bounds of a tree of calls.
const (
	maxCalls   = 1 << 20
	maxCallers = 128 // levels of callers
	maxSteps   = 1 << 24
)

// Callers returns who calls the matching functions, directly or not. If several functions of a stack match, the
// outermost counts. A function that calls itself by way of others has the callers of all its calls, and each caller
// of a sample counts once: together, the callers of such a function can have more than the function.
func (r *Recording) Callers(m Mode, match func(*Function) bool) *Calls {
	g := newCallGraph(r, m, match)
	inner := make([]int32, len(r.Nodes))  // by node: the innermost call of the matching function
	weights := make([]Part, len(r.Nodes)) // by innermost call
	for n := 1; n < len(r.Nodes); n++ {
		anchor := g.anchor[n]
		if anchor == 0 {
			continue
		}
		if inner[n] = inner[r.Nodes[n].Parent]; g.function(int32(n)) == g.function(anchor) {
			inner[n] = int32(n)
		}
		weights[inner[n]].add(&g.self[n])
	}
	steps := 0
	for n := range weights {
		if weights[n].All().Samples == 0 {
			continue
		}
		g.matched.add(&weights[n])
		if !g.addCallers(int32(n), &weights[n], &steps) {
			g.cut = true
		}
	}
	return g.finish()
}

// addCallers adds the callers of a call, up to the base of its stack; false: there are too many.
func (g *callGraph) addCallers(of int32, weight *Part, steps *int) bool {
	whole, levels := true, 0
	function := g.function(of)
	root := g.child(-1, function)
	add := func(at int32) {
		if g.counted[at] != of {
			g.counted[at] = of
			g.calls[at].Total.add(weight)
		}
	}
	if root < 0 {
		return false
	}
	add(root)
	at := root // -1: until the next call of the function, nothing is added
	for n := g.r.Nodes[of].Parent; n > 0; n = g.r.Nodes[n].Parent {
		if *steps++; *steps > maxSteps {
			return false
		}
		f := g.function(n)
		if at >= 0 {
			levels++
			if at = g.child(at, f); at < 0 || levels > maxCallers {
				at, whole = -1, false
			} else {
				add(at)
			}
		}
		if f == function {
			at, levels = root, 0
		}
	}
	return whole
}

// Callees returns what the matching functions call, directly or not. If several functions of a stack match, the
// outermost counts. If match is nil, Callees returns all calls, from the bases of the stacks on.
func (r *Recording) Callees(m Mode, match func(*Function) bool) *Calls {
	g := newCallGraph(r, m, match)
	place := make([]int32, len(r.Nodes)) // of each node in g.calls
	for n := 1; n < len(r.Nodes); n++ {
		place[n] = -1
		anchor := g.anchor[n]
		if anchor == 0 || g.subtree[n].All().Samples == 0 {
			continue
		}
		parent := int32(-1)
		if anchor != int32(n) {
			parent = place[r.Nodes[n].Parent]
		} else {
			g.matched.add(&g.subtree[n])
		}
		at := g.child(parent, g.function(int32(n)))
		if at < 0 { // there are too many: the parent has its weight
			g.cut = true
			place[n] = parent
			if at = parent; at < 0 {
				continue
			}
		}
		place[n] = at
		g.calls[at].Self.add(&g.self[n])
		g.calls[at].Total.add(&g.self[n])
	}
	for i := len(g.calls) - 1; i >= 0; i-- { // a parent comes before its children
		if p := g.calls[i].Parent; p >= 0 {
			g.calls[p].Total.add(&g.calls[i].Total)
		}
	}
	return g.finish()
}

// HeaviestPath returns the calls with the largest totals, from the base of the stacks on. The path follows the
// heaviest callee at each step. The path ends where a function itself has more than its heaviest callee.
func (c *Calls) HeaviestPath() []Call {
	var out []Call
	for i := int32(0); int(i) < len(c.List); i++ { // the heaviest callee comes first, right behind
		call := &c.List[i]
		if n := len(out); n > 0 {
			caller := &out[n-1]
			if i >= caller.End || caller.Self.All().Weight > call.Total.All().Weight {
				break
			}
		}
		out = append(out, *call)
	}
	return out
}

// callGraph is a tree of calls under construction.
type callGraph struct {
	r             *Recording
	mode          Mode
	self, subtree []Part  // by node
	anchor        []int32 // by node: the outermost matching node between the base and the node; 0: none
	same          []int32 // by function
	calls         []Call
	counted       []int32 // by call, of a tree of callers: the call whose callers were added last
	index         map[callKey]int32
	all, matched  Part
	cut           bool
}

type callKey struct{ parent, function int32 }

func newCallGraph(r *Recording, m Mode, match func(*Function) bool) *callGraph {
	g := &callGraph{r: r, mode: m, same: sameNames(r), index: map[callKey]int32{}}
	g.self, g.anchor = make([]Part, len(r.Nodes)), make([]int32, len(r.Nodes))
	for i := range r.Samples {
		if x := &r.Samples[i]; x.Mode == m {
			a := Amount{x.Weight, x.Events, int(x.Count)}
			g.self[x.Node][x.State&1].Add(a)
			g.all[x.State&1].Add(a)
		}
	}
	matches := make([]bool, len(r.Functions))
	for i := range matches {
		matches[i] = match == nil || match(&r.Functions[i])
	}
	g.subtree = slices.Clone(g.self)
	for n := len(g.subtree) - 1; n > 0; n-- { // a parent comes before its children
		g.subtree[r.Nodes[n].Parent].add(&g.subtree[n])
	}
	for n := 1; n < len(r.Nodes); n++ {
		g.anchor[n] = g.anchor[r.Nodes[n].Parent]
		if g.anchor[n] == 0 && matches[r.Locations[r.Nodes[n].Location].Function] {
			g.anchor[n] = int32(n)
		}
	}
	return g
}

func (g *callGraph) function(node int32) int32 {
	return g.same[g.r.Locations[g.r.Nodes[node].Location].Function]
}

// child returns the index of a call. child returns parent if parent's function is the call's; -1: there are too many.
func (g *callGraph) child(parent, function int32) int32 {
	if parent >= 0 && g.calls[parent].Function == function {
		return parent
	}
	k := callKey{parent, function}
	at, ok := g.index[k]
	if !ok {
		if len(g.calls) >= maxCalls {
			return -1
		}
		at = int32(len(g.calls))
		g.index[k] = at
		g.calls = append(g.calls, Call{Function: function, Parent: parent})
		g.counted = append(g.counted, 0)
	}
	return at
}

// finish puts the calls into preorder, siblings by weight.
func (g *callGraph) finish() *Calls {
	n := len(g.calls)
	size, first, next := make([]int32, n), unknown(n+1), unknown(n)
	order := make([]int32, n)
	for i := n - 1; i >= 0; i-- {
		order[i] = int32(i)
		size[i]++
		if p := g.calls[i].Parent; p >= 0 {
			size[p] += size[i]
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(g.calls[b].Total.All().Weight, g.calls[a].Total.All().Weight)
	})
	for _, i := range slices.Backward(order) { // lists of children, the heaviest first; [0] has the roots
		p := g.calls[i].Parent + 1
		next[i], first[p] = first[p], i
	}
	place, list := make([]int32, n), make([]Call, n)
	put := func(child, at int32) {
		for ; child >= 0; child = next[child] {
			place[child] = at
			at += size[child]
		}
	}
	put(first[0], 0)
	for i := range g.calls { // a parent comes before its children
		put(first[i+1], place[i]+1)
	}
	for i, c := range g.calls {
		if c.Parent >= 0 {
			c.Parent = place[c.Parent]
		}
		c.End = place[i] + size[i]
		list[place[i]] = c
	}
	return &Calls{Mode: g.mode, All: g.all, Matched: g.matched, List: list, Cut: g.cut}
}
