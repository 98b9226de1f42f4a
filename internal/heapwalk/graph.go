package heapwalk

import (
	"cmp"
	"slices"

	"clrsnap/internal/clr/heap"
	"clrsnap/snapshot"
)

// objects describes all objects, and the roots that keep the objects.
func (h *heapWalk) objects(g *heap.Graph, out *snapshot.Heap) {
	if out.Partial {
		return
	}
	roots := h.findRoots(g, true, out)
	sets, kept := h.rootSets(g, slices.Concat(roots.sure, roots.maybe), out.RootsMoved)
	free, circles, ok := g.Heads(kept, h.Stopped)
	if !ok || h.Stopped() {
		out.Partial = true
		return
	}
	to := &snapshot.HeapGraph{Count: g.Len()}
	for _, t := range g.Tables {
		c := h.Name(t.Addr)
		to.Classes = append(to.Classes, snapshot.HeapClass{Name: c.Display, Assembly: c.Assembly})
	}
	to.Objects = func(yield func(snapshot.HeapObject) bool) {
		g.All(func(o heap.Object, refs []uint32) bool {
			return yield(snapshot.HeapObject{
				Address: uint64(o.Addr), Bytes: o.Size, Class: o.Table.Index, References: refs,
			})
		})
	}
	for _, r := range g.Regions() {
		to.Regions = append(to.Regions, snapshot.HeapRegion{
			Start: uint64(r.Start), End: uint64(r.End), Generation: snapshot.Generation(r.Generation),
		})
	}
	to.Roots = append(sets, snapshot.HeapRootSet{Root: snapshot.RootUnknown, Objects: free},
		snapshot.HeapRootSet{Root: snapshot.RootCircle, Objects: circles})
	out.Graph = to
}

// maxRootSets bounds the sets of roots. Beyond the bound, static fields have no names.
const maxRootSets = 1 << 18

// rootSets groups roots by kind, each group with the objects that the roots keep. kept has the
// objects of all groups.
func (h *heapWalk) rootSets(g *heap.Graph, roots []uint32, moved bool) (sets []snapshot.HeapRootSet, kept []uint32) {
	h.readStatics(g)
	type kind struct {
		root   snapshot.HeapRoot
		static string
		handle snapshot.HandleKind
	}
	at := map[kind]int{}
	for i, n := range roots {
		if i%(1<<10) == 0 && h.Stopped() {
			break
		}
		p := h.beginning(g, int(n), moved)
		if p.Root == snapshot.RootUnknown {
			continue
		}
		if len(sets) >= maxRootSets {
			p.Static = ""
		}
		of := kind{p.Root, p.Static, p.Handle}
		k, ok := at[of]
		if !ok {
			k = len(sets)
			at[of] = k
			sets = append(sets, snapshot.HeapRootSet{Root: p.Root, Static: p.Static, Handle: p.Handle})
		}
		sets[k].Objects = append(sets[k].Objects, n)
		kept = append(kept, n)
	}
	slices.SortFunc(sets, func(a, b snapshot.HeapRootSet) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(a.Static, b.Static), cmp.Compare(a.Handle, b.Handle))
	})
	return sets, kept
}
