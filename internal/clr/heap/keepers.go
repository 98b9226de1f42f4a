package heap

// Keeper is what several objects retain: objects of one class, of which each is dominated at once by one of the objects
// of another Keeper. A tree of them says what keeps what, class by class. What objects of one class keep in a row, such
// as those of a linked list, is one Keeper.
type Keeper struct {
	Parent   int32 // an earlier one; of the first, which stands for everything: itself
	Label    int32 // see KeeperOptions
	Objects  Tally
	Retained uint64 // bytes of Objects, and of all that only they keep
}

// KeeperOptions say how objects are summed up. Class is required.
type KeeperOptions struct {
	// Class is the label of an object's class, which is not negative; negative: the object is passed over.
	Class func(o Object, in Generation) int32
	// Slot is the label of what lies between an object and what dominates it at once, if that was passed over or is a
	// root; negative: nothing. nil: nothing ever does.
	Slot func(n int) int32
	// Stopped is asked from time to time whether to end early.
	Stopped func() bool
}

// Bounds of a tree of Keepers. What is beyond them counts for the Keeper above.
const (
	mostKeepers    = 1 << 19
	deepestKeepers = 48
)

// Keepers sums up what objects retain. nil: it was stopped.
func (r *Retained) Keepers(o KeeperOptions) []Keeper {
	k := keepers{o: o, at: map[uint64]int32{}, all: []Keeper{{Label: -1}}, depth: []uint8{0}}
	of := make([]int32, len(r.object)) // by vertex; those that are passed over have that above, as a complement
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

// keepers are being made.
type keepers struct {
	o     KeeperOptions
	all   []Keeper
	depth []uint8
	at    map[uint64]int32 // by parent and label
}

// below returns the Keeper of a label below another one.
func (k *keepers) below(parent, label int32) int32 {
	if k.all[parent].Label == label {
		return parent
	}
	key := uint64(uint32(parent))<<32 | uint64(uint32(label))
	if n, ok := k.at[key]; ok {
		return n
	}
	if len(k.all) >= mostKeepers || k.depth[parent] >= deepestKeepers {
		return parent
	}
	n := int32(len(k.all))
	k.all = append(k.all, Keeper{Parent: parent, Label: label})
	k.depth = append(k.depth, k.depth[parent]+1)
	k.at[key] = n
	return n
}
