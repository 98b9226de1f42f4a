package session

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/profile"
)

// objects describes all objects and what keeps them.
func (h *heapWalk) objects(g *heap.Graph, out *profile.Heap) {
	free, circles, ok := g.Heads(h.stopped)
	if !ok || out.Partial {
		out.Partial = true
		return
	}
	to := &profile.HeapGraph{Count: g.Len()}
	for _, t := range g.Tables {
		c := h.name(t.Addr)
		to.Classes = append(to.Classes, profile.HeapClass{Name: c.Display, Assembly: c.Assembly})
	}
	to.Objects = func(yield func(profile.HeapObject) bool) {
		g.All(func(o heap.Object, refs []uint32) bool {
			return yield(profile.HeapObject{
				Address: uint64(o.Addr), Bytes: o.Size, Class: o.Table.Index, References: refs,
			})
		})
	}
	for _, r := range g.Regions() {
		to.Regions = append(to.Regions, profile.HeapRegion{
			Start: uint64(r.Start), End: uint64(r.End), Generation: profile.Generation(r.Generation),
		})
	}
	to.Roots = append(h.staticRoots(g, free), profile.HeapRootSet{Root: profile.RootUnknown, Objects: free},
		profile.HeapRootSet{Root: profile.RootCircle, Objects: circles})
	out.Graph = to
}

// staticRoots are the static fields whose names are known, by name, among what nothing on the heap refers to.
func (h *heapWalk) staticRoots(g *heap.Graph, free []uint32) (out []profile.HeapRootSet) {
	h.p.Engine.Cache.Invalidate()
	h.static = h.findStatics(g)
	byName := map[string]*profile.HeapRootSet{}
	for _, n := range free {
		table, in := g.Object(int(n))
		if h.isStatics(table, in) && table.Size <= maxTable && !h.stopped() {
			h.addStatics(g, table, byName)
		}
	}
	for _, s := range byName {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b profile.HeapRootSet) int {
		if a.Static < b.Static {
			return -1
		}
		return 1
	})
	return out
}

// maxStaticRoots bounds how many static fields are named.
const maxStaticRoots = 1 << 18

// addStatics adds the fields of a table of static fields.
func (h *heapWalk) addStatics(g *heap.Graph, table heap.Object, byName map[string]*profile.HeapRootSet) {
	b := h.slots(table)
	for i := 16; i+8 <= len(b); i += 8 {
		n, ok := g.At(arch.Addr(binary.LittleEndian.Uint64(b[i:])))
		if !ok {
			continue
		}
		name := h.fieldAt(table.Addr + arch.Addr(i))
		if name == "" || len(byName) >= maxStaticRoots {
			continue
		}
		s := byName[name]
		if s == nil {
			s = &profile.HeapRootSet{Root: profile.RootStatic, Static: name}
			byName[name] = s
		}
		s.Objects = append(s.Objects, n)
	}
}
