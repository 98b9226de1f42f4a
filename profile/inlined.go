package profile

import "slices"

// insertRoom is how many nodes Insert may add, beyond the recording's own number of nodes.
const insertRoom = 1 << 16

// Insert returns a copy of r with further frames in its stacks. between returns the new frames between a caller and
// its callee, given by their locations, the innermost first. The copy and r share data: neither may be changed
// afterwards. Frames without room are left out.
func (r *Recording) Insert(between func(caller, callee int32) []int32) *Recording {
	t := inserter{
		nodes: []Node{r.Nodes[0]}, index: map[Node]int32{}, more: make([]int32, len(r.Nodes)),
		most: MaxDepth - r.deepest(), limit: 2*len(r.Nodes) + insertRoom,
	}
	at := make([]int32, len(r.Nodes))
	for i := 1; i < len(r.Nodes); i++ {
		n := r.Nodes[i]
		parent, more := at[n.Parent], t.more[n.Parent]
		if n.Parent > 0 {
			frames := between(r.Nodes[n.Parent].Location, n.Location)
			if len(frames) <= t.most-int(more) && len(t.nodes)+len(frames) < t.limit {
				more += int32(len(frames))
				for _, l := range slices.Backward(frames) {
					parent = t.child(parent, l)
				}
			}
		}
		at[i], t.more[i] = t.child(parent, n.Location), more
	}
	out := *r
	out.Nodes = t.nodes
	out.Samples, out.Holds = slices.Clone(r.Samples), slices.Clone(r.Holds)
	for i := range out.Samples {
		out.Samples[i].Node = at[out.Samples[i].Node]
	}
	for i := range out.Holds {
		out.Holds[i].Node = at[out.Holds[i].Node]
	}
	return &out
}

type inserter struct {
	nodes []Node
	index map[Node]int32
	more  []int32 // by old node: frames added to the node's stack
	most  int     // most frames that a stack may gain
	limit int     // of nodes
}

func (t *inserter) child(parent, location int32) int32 {
	return intern(t.index, &t.nodes, Node{parent, location})
}

// deepest returns the number of frames of the deepest stack.
func (r *Recording) deepest() int {
	depth := make([]int, len(r.Nodes))
	most := 0
	for i := 1; i < len(r.Nodes); i++ {
		depth[i] = depth[r.Nodes[i].Parent] + 1
		most = max(most, depth[i])
	}
	return most
}

// inlined reports whether a node is an inlined method.
func (r *Recording) inlined(node int32) bool {
	return node > 0 && r.Locations[r.Nodes[node].Location].Inlined
}
