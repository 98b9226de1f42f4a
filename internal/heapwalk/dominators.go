package heapwalk

import (
	"clrsnap/internal/clr/heap"
	"clrsnap/snapshot"
)

// Bounds of the shown tree of Dominators.
const (
	mostShown         = 20_000
	leastKeptFraction = 20_000 // a Dominator retains at least this fraction of the heap: 1/20,000
)

// dominators finds the dominators of the heap, type by type.
func (h *heapWalk) dominators(c *heap.Census, of *heap.Retained, out *snapshot.Heap) {
	labels, types := labelsOf(c.Tables, out.Types, h)
	slots, sets := h.rootSlots(c.Graph, out.RootsMoved)
	all := of.Dominators(heap.DominatorOptions{
		Class: func(o heap.Object, in heap.Generation) int32 {
			if h.isStatics(o, in) {
				return -1
			}
			return labels[o.Table.Index]
		},
		Slot: func(n int) int32 {
			if s, ok := slots[uint32(n)]; ok {
				return types + s
			}
			return -1
		},
		Stopped: h.Stopped,
	})
	if all == nil {
		out.Partial = true
		return
	}
	out.Dominators = shownDominators(all, types, sets)
}

// labelsOf returns the indices of types, by MethodTable; -1: no object of the type was counted.
// types is the first number that is no index of a type.
func labelsOf(tables []*heap.Table, all []snapshot.HeapType, h *heapWalk) (labels []int32, types int32) {
	byName := map[typeKey]int32{}
	for i := range all {
		byName[typeKey{all[i].Name, all[i].Assembly, all[i].Context}] = int32(i)
	}
	for _, t := range tables {
		n, ok := byName[h.typeKey(t.Addr)]
		if !ok {
			n = -1
		}
		labels = append(labels, n)
	}
	return labels, int32(len(all))
}

// rootSlots returns the sets of roots that certainly keep objects, and for each object the index of
// the set that keeps the object.
func (h *heapWalk) rootSlots(g *heap.Graph, moved bool) (slots map[uint32]int32, sets []snapshot.HeapRootSet) {
	slots = map[uint32]int32{}
	sets, _ = h.rootSets(g, h.roots.sure, moved)
	for i := range sets {
		for _, n := range sets[i].Objects {
			slots[n] = int32(i)
		}
	}
	return slots, sets
}

// shownDominators returns the Dominators that keep most, each below its parent.
func shownDominators(all []heap.Dominator, types int32, sets []snapshot.HeapRootSet) []snapshot.HeapDominator {
	least := all[0].Retained/leastKeptFraction + 1
	for atLeast(all, least) > mostShown {
		least *= 2
	}
	at := make([]int32, len(all))
	var out []snapshot.HeapDominator
	for i, k := range all {
		at[i] = -1
		if i > 0 && k.Retained < least {
			continue // as are the Dominators below
		}
		at[i] = int32(len(out))
		o := snapshot.HeapDominator{
			Parent: at[k.Parent], Type: k.Label, Objects: snapshot.HeapAmount(k.Objects), Retained: k.Retained,
		}
		if k.Label >= types {
			set := &sets[k.Label-types]
			o.Type, o.Root, o.Static, o.Handle = -1, set.Root, set.Static, set.Handle
		}
		out = append(out, o)
	}
	return out
}

// atLeast is the number of Dominators that retain at least so many bytes.
func atLeast(all []heap.Dominator, bytes uint64) (n int) {
	for i := range all {
		if all[i].Retained >= bytes {
			n++
		}
	}
	return n
}
