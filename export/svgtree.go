package export

import (
	"cmp"
	"slices"

	"clrsnap/profile"
)

// frameTree is a recording's stacks of one mode as functions: what a flame graph
// shows. Frames [0] is everything.
type frameTree struct {
	frames []treeFrame
}

type treeFrame struct {
	function    *profile.Function // nil: everything, or incomplete stacks
	label       string            // where there is no function
	self, total profile.Amount
	children    []int32 // heaviest first
}

type treeKey struct {
	parent     int32
	incomplete bool
	function   int32
}

// newFrameTree sums up r, which is a selection already. Incomplete stacks stand
// apart, below a frame that says so.
func newFrameTree(r *profile.Recording, m profile.Mode) *frameTree {
	t := &frameTree{frames: []treeFrame{{label: "all"}}}
	index := map[treeKey]int32{}
	child := func(k treeKey, f treeFrame) int32 {
		at, ok := index[k]
		if !ok {
			at = int32(len(t.frames))
			index[k] = at
			t.frames = append(t.frames, f)
			t.frames[k.parent].children = append(t.frames[k.parent].children, at)
		}
		return at
	}
	var places [2][]int32 // of nodes; of those of complete and of incomplete stacks
	for _, s := range r.Samples {
		if s.Mode != m {
			continue
		}
		kind, root := 0, int32(0)
		if s.Incomplete {
			kind, root = 1, child(treeKey{incomplete: true}, treeFrame{label: incompleteFrame})
		}
		if places[kind] == nil {
			places[kind] = treePlaces(r, root, child)
		}
		t.frames[places[kind][s.Node]].self.Add(profile.Amount{Weight: s.Weight, Events: s.Events, Samples: int(s.Count)})
	}
	t.sum()
	return t
}

// treePlaces puts every node of r below a root, and returns where each is. A parent
// comes before its children.
func treePlaces(r *profile.Recording, root int32, child func(treeKey, treeFrame) int32) []int32 {
	places := make([]int32, len(r.Nodes))
	places[0] = root
	for n := 1; n < len(r.Nodes); n++ {
		f := r.Locations[r.Nodes[n].Location].Function
		places[n] = child(treeKey{parent: places[r.Nodes[n].Parent], function: f}, treeFrame{function: &r.Functions[f]})
	}
	return places
}

// sum fills in the totals, and sorts children by them.
func (t *frameTree) sum() {
	for i := len(t.frames) - 1; i >= 0; i-- { // children are behind their parents
		f := &t.frames[i]
		f.total.Add(f.self)
		for _, c := range f.children {
			f.total.Add(t.frames[c].total)
		}
		slices.SortFunc(f.children, func(a, b int32) int {
			return cmp.Or(cmp.Compare(t.frames[b].total.Weight, t.frames[a].total.Weight), cmp.Compare(a, b))
		})
	}
}
