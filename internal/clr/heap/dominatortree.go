package heap

// Dominator sums up objects of one class whose immediate dominators belong to one parent Dominator. A tree of
// Dominators shows, class by class, the dominators of the heap's memory. A row of objects of one class, such as a
// linked list, is one Dominator.
type Dominator struct {
	Parent   int32 // index of an earlier Dominator; the first Dominator, which stands for everything, is its own parent
	Label    int32 // see DominatorOptions
	Objects  Tally
	Retained uint64 // bytes of Objects, and of all objects that Objects dominate
}

// DominatorOptions control the sums. Class is required.
type DominatorOptions struct {
	// Class returns the label of an object's class, which is not negative; negative: pass over the object.
	Class func(o Object, in Generation) int32
	// Slot returns the label of the place between an object and its immediate dominator, if the dominator was passed
	// over or is a root; negative: no place. nil: no object has a place.
	Slot func(n int) int32
	// Stopped is called from time to time, and reports whether to end early.
	Stopped func() bool
}

// Bounds of a tree of Dominators. Objects beyond the bounds count for the Dominator above.
const (
	mostBranches = 1 << 19
	deepestTree  = 48
)

// Dominators sums up the bytes that objects retain. nil: the search was stopped.
func (r *Retained) Dominators(o DominatorOptions) []Dominator {
	k := dominatorTree{o: o, at: map[uint64]int32{}, all: []Dominator{{Label: -1}}, depth: []uint8{0}}
	of := make([]int32, len(r.object)) // by vertex; a passed-over vertex has the Dominator above, as a complement
	ask := asking{stopped: o.Stopped}
	for v := 1; v < len(r.object) && !ask.end(); v++ {
		n := int(r.object[v])
		object, in := r.g.Object(n)
		up := of[r.idom[v]]
		passed := up < 0
		if passed {
			up = ^up
		}
		class := o.Class(object, in)
		if class < 0 {
			of[v] = ^up
			continue
		}
		if (passed || r.idom[v] == 0) && o.Slot != nil {
			if slot := o.Slot(n); slot >= 0 {
				up = k.below(up, slot)
			}
		}
		to := k.below(up, class)
		k.all[to].Objects.add(Tally{1, object.Size})
		of[v] = to
	}
	if ask.ended {
		return nil
	}
	for i := len(k.all) - 1; i >= 0; i-- {
		k.all[i].Retained += k.all[i].Objects.Bytes
		if i > 0 {
			k.all[k.all[i].Parent].Retained += k.all[i].Retained
		}
	}
	return k.all
}

// dominatorTree builds the tree.
type dominatorTree struct {
	o     DominatorOptions
	all   []Dominator
	depth []uint8
	at    map[uint64]int32 // by parent and label
}

// below returns the Dominator of a label below another Dominator.
func (k *dominatorTree) below(parent, label int32) int32 {
	if k.all[parent].Label == label {
		return parent
	}
	key := uint64(uint32(parent))<<32 | uint64(uint32(label))
	if n, ok := k.at[key]; ok {
		return n
	}
	if len(k.all) >= mostBranches || k.depth[parent] >= deepestTree {
		return parent
	}
	n := int32(len(k.all))
	k.all = append(k.all, Dominator{Parent: parent, Label: label})
	k.depth = append(k.depth, k.depth[parent]+1)
	k.at[key] = n
	return n
}
