package heapwalk

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/snapshot"
)

// Bounds of paths.
const (
	mostSampled = 20_000 // objects with followed paths
	mostSteps   = 1_000  // of one path
	mostPaths   = 1_000  // different paths

	maxStaticSlots = 1 << 17 // of one array
)

// paths finds the paths that keep the objects of the types in Options.Roots.
func (h *heapWalk) paths(g *heap.Graph, out *snapshot.Heap) {
	wanted := h.chosenTables(g, h.o.Roots)
	for n := range g.Len() {
		if o, _ := g.Object(n); wanted[o.Table.Index] {
			out.Kept.Add(snapshot.HeapAmount{Count: 1, Bytes: o.Size})
		}
	}
	if out.Kept.Count == 0 {
		return
	}
	step := int((out.Kept.Count + mostSampled - 1) / mostSampled)
	var chosen []int
	met := 0
	for n := range g.Len() {
		if o, _ := g.Object(n); !wanted[o.Table.Index] {
			continue
		}
		if met%step == 0 {
			chosen = append(chosen, n)
		}
		met++
	}
	ways := h.findWays(g, out)
	if ways == nil {
		out.Partial = true
		return
	}
	byKey := map[string]*snapshot.HeapPath{}
	for _, n := range chosen {
		if h.Stopped() {
			out.Partial = true
			break
		}
		if !h.addPath(g, ways, n, byKey, out) {
			o, _ := g.Object(n)
			out.OtherPaths.Add(snapshot.HeapAmount{Count: 1, Bytes: o.Size})
		}
	}
	estimate := func(a *snapshot.HeapAmount) {
		a.Count *= uint64(step)
		a.Bytes *= uint64(step)
	}
	estimate(&out.OtherPaths)
	for _, p := range byKey {
		p.Sampled = step > 1
		estimate(&p.Objects)
		out.Paths = append(out.Paths, *p)
	}
	slices.SortFunc(out.Paths, func(a, b snapshot.HeapPath) int {
		return cmp.Or(cmp.Compare(b.Objects.Count, a.Objects.Count), cmp.Compare(b.Objects.Bytes, a.Objects.Bytes),
			cmp.Compare(len(a.Steps), len(b.Steps)), cmp.Compare(keyOf(&a), keyOf(&b)))
	})
}

// findWays finds the ways to all objects; nil: the search was ended early.
func (h *heapWalk) findWays(g *heap.Graph, out *snapshot.Heap) *heap.Paths {
	roots := h.findRoots(g, true, out)
	ways := g.Paths([][]uint32{roots.sure, roots.maybe}, h.doing("the shortest ways to objects"), h.Stopped)
	if ways != nil {
		h.readStatics(g)
	}
	return ways
}

// addPath adds the path of one object; false: there are too many different paths.
func (h *heapWalk) addPath(g *heap.Graph, ways *heap.Paths, n int, byKey map[string]*snapshot.HeapPath,
	out *snapshot.Heap) bool {
	to := ways.To(n, mostSteps)
	way, gap := to.Objects, len(to.Objects)-to.Gap // in front of way[gap], objects are left out
	slices.Reverse(way)
	begin := snapshot.HeapPath{Root: snapshot.RootCircle}
	if to.Whole {
		begin = h.beginning(g, way[0], out.RootsMoved)
	}
	var steps []snapshot.HeapStep
	var lasts []int // in way
	for i, x := range way {
		o, _ := g.Object(x)
		name := h.Name(o.Table.Addr).Display
		if last := len(steps) - 1; last >= 0 && steps[last].Type == name && i != gap {
			steps[last].Times++
			lasts[last] = i
			continue
		}
		steps, lasts = append(steps, snapshot.HeapStep{Type: name, Times: 1, Gap: i == gap}), append(lasts, i)
	}
	begin.Steps = steps
	key := keyOf(&begin)
	p := byKey[key]
	if p == nil {
		if len(byKey) >= mostPaths {
			return false
		}
		for i := range steps[:max(len(steps)-1, 0)] {
			if steps[i+1].Gap {
				continue
			}
			from, next := way[lasts[i]], way[lasts[i]+1]
			switch {
			case g.Linked(from, next):
				steps[i].Dependent = true
			case g.ByType(from, next):
				steps[i].ByType = true
			default:
				steps[i].Static = h.slotField(g, from, next)
				if steps[i].Static == "" {
					steps[i].Field = h.field(g, from, next)
				}
			}
		}
		for i := range steps {
			if steps[i].Times == 1 {
				steps[i].Of = h.meaning(g, way[lasts[i]])
			}
		}
		p = &begin
		byKey[key] = p
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Of != "" && s.Of != h.meaning(g, way[lasts[i]]) {
			s.Of = "" // the meanings differ
		}
	}
	o, _ := g.Object(n)
	p.Objects.Add(snapshot.HeapAmount{Count: 1, Bytes: o.Size})
	return true
}

// beginning describes the root that keeps the first object of a way.
func (h *heapWalk) beginning(g *heap.Graph, n int, moved bool) (p snapshot.HeapPath) {
	p.Root = snapshot.RootUnknown
	by, ok := h.roots.by[uint32(n)]
	first, _ := g.Object(n)
	if !ok || moved && !h.still(first) {
		return p
	}
	p.Root, p.Handle, p.Thread, p.Method = by.kind, by.handle, by.thread, by.method
	switch by.kind {
	case snapshot.RootStatic:
		p.Static, p.Listed = h.staticField(by.slots), h.p.Runtime == nil
	case snapshot.RootThreadStatic:
		p.Static = h.threadField(by.array, by.offset)
	}
	return p
}

// still reports whether an object of the class is still at the address.
func (h *heapWalk) still(o heap.Object) bool {
	class, err := h.p.Managed.Objects.Class(o.Addr)
	return err == nil && class.Table == o.Table.Addr
}

// keyOf tells paths apart. Paths from stacks of threads with one name are the same.
func keyOf(p *snapshot.HeapPath) string {
	var b strings.Builder
	b.WriteString(string(p.Root))
	b.WriteByte(0)
	b.WriteString(p.Static)
	b.WriteByte(0)
	b.WriteString(string(p.Handle))
	if p.Thread != nil {
		b.WriteByte(0)
		if b.WriteString(p.Thread.Name); p.Thread.Name == "" {
			b.WriteString(strconv.Itoa(p.Thread.OSThreadID))
		}
		b.WriteByte(0)
		b.WriteString(p.Method)
	}
	for i := range p.Steps {
		if b.WriteByte('\n'); p.Steps[i].Gap {
			b.WriteByte(0)
		}
		b.WriteString(p.Steps[i].Type)
	}
	return b.String()
}

// meaning describes what an object stands for; empty: nothing else, or the object has been moved.
func (h *heapWalk) meaning(g *heap.Graph, n int) string {
	o, _ := g.Object(n)
	return h.meaningOf(o)
}

func (h *heapWalk) meaningOf(o heap.Object) string {
	class, err := h.p.Managed.Objects.Class(o.Addr)
	if err != nil || class.Table != o.Table.Addr {
		return ""
	}
	return meaning(h.p, o.Addr, class)
}

// slotField names the static field by which an array of static fields refers to an object; empty:
// the array is no array of static fields, or the field is unknown. A collectible class has its own
// array, kept by the class's LoaderAllocator.
func (h *heapWalk) slotField(g *heap.Graph, from, to int) string {
	o, in := g.Object(from)
	if h.Name(o.Table.Addr).Display != "object[]" || !h.still(o) {
		return ""
	}
	_, begins := slices.BinarySearchFunc(h.static.bases, o.Addr+arrayData, func(b staticBase, at arch.Addr) int {
		return cmp.Compare(b.at, at)
	})
	if !begins && !h.isStatics(o, in) {
		return ""
	}
	target, _ := g.Object(to)
	fields, err := h.p.Managed.Objects.References(o.Addr, maxStaticSlots)
	if err != nil {
		return ""
	}
	for i, at := range fields {
		if at == target.Addr {
			if name := h.fieldAt(o.Addr + arrayData + 8*arch.Addr(i)); name != "" {
				return name
			}
		}
	}
	return ""
}

// field returns the field in which an object refers to another; empty: unknown, because both have
// moved since, say.
func (h *heapWalk) field(g *heap.Graph, from, to int) string {
	a, _ := g.Object(from)
	b, _ := g.Object(to)
	h.p.Engine.Cache.Invalidate()
	class, err := h.p.Managed.Objects.Class(a.Addr)
	if err != nil || class.Table != a.Table.Addr {
		return ""
	}
	field, err := h.p.Managed.Objects.RefersTo(a.Addr, class, b.Addr)
	if field == "" && err == nil { // the field has another object by now
		field, err = h.p.Managed.Objects.OnlyField(a.Addr, class, b.Table.Addr)
	}
	if err != nil {
		return ""
	}
	return field
}
