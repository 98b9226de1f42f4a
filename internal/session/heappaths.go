package session

import (
	"cmp"
	"slices"
	"strings"

	"clrsnap/internal/clr/heap"
	"clrsnap/profile"
)

// Bounds of paths.
const (
	mostSampled = 20_000 // objects whose paths are followed
	mostSteps   = 1_000  // of one path
	mostPaths   = 1_000  // that differ
)

// paths finds how the objects of the types that were asked for are kept.
func (h *heapWalk) paths(g *heap.Graph, out *profile.Heap) {
	var chosen []int
	for n := range g.Len() {
		o, _ := g.Object(n)
		if h.o.Roots.MatchString(h.name(o.Table.Addr).Display) {
			chosen = append(chosen, n)
			out.Kept.Add(profile.HeapAmount{Count: 1, Bytes: o.Size})
		}
	}
	if len(chosen) == 0 {
		return
	}
	ways := g.Paths(h.isStatics, h.stopped)
	if ways == nil {
		out.Partial = true
		return
	}
	h.p.Engine.Cache.Invalidate()
	h.static = h.findStatics(g)
	step := (len(chosen) + mostSampled - 1) / mostSampled
	byKey := map[string]*profile.HeapPath{}
	for i := 0; i < len(chosen); i += step {
		if h.stopped() {
			out.Partial = true
			break
		}
		if !h.addPath(g, ways, chosen[i], byKey) {
			o, _ := g.Object(chosen[i])
			out.OtherPaths.Add(profile.HeapAmount{Count: 1, Bytes: o.Size})
		}
	}
	estimate := func(a *profile.HeapAmount) {
		a.Count *= uint64(step)
		a.Bytes *= uint64(step)
	}
	estimate(&out.OtherPaths)
	for _, p := range byKey {
		p.Sampled = step > 1
		estimate(&p.Objects)
		out.Paths = append(out.Paths, *p)
	}
	slices.SortFunc(out.Paths, func(a, b profile.HeapPath) int {
		return cmp.Or(cmp.Compare(b.Objects.Count, a.Objects.Count), cmp.Compare(b.Objects.Bytes, a.Objects.Bytes),
			cmp.Compare(len(a.Steps), len(b.Steps)), cmp.Compare(keyOf(a.Root, a.Steps), keyOf(b.Root, b.Steps)))
	})
}

// isStatics reports whether an object that nothing refers to is a table in which the runtime keeps static fields: an
// array of objects that was allocated so that it never moves (src/coreclr/vm/appdomain.cpp, PinnedHeapHandleTable).
func (h *heapWalk) isStatics(o heap.Object, in heap.Generation) bool {
	return in == heap.Pinned && h.name(o.Table.Addr).Display == "object[]"
}

// addPath adds the path of one object; false: there are too many that differ.
func (h *heapWalk) addPath(g *heap.Graph, ways *heap.Paths, n int, byKey map[string]*profile.HeapPath) bool {
	to := ways.To(n, mostSteps)
	way, gap := to.Objects, len(to.Objects)-to.Gap // in front of way[gap] some are left out
	slices.Reverse(way)
	root, field := profile.RootCircle, ""
	if to.Whole {
		root = profile.RootUnknown
		if o, in := g.Object(way[0]); h.isStatics(o, in) && len(way) > 1 {
			first, _ := g.Object(way[1])
			root, way, field = profile.RootStatic, way[1:], h.knownField(o, first)
			gap--
		}
	}
	var steps []profile.HeapStep
	var lasts []int // in way
	for i, x := range way {
		o, _ := g.Object(x)
		name := h.name(o.Table.Addr).Display
		if last := len(steps) - 1; last >= 0 && steps[last].Type == name && i != gap {
			steps[last].Times++
			lasts[last] = i
			continue
		}
		steps, lasts = append(steps, profile.HeapStep{Type: name, Times: 1, Gap: i == gap}), append(lasts, i)
	}
	key := keyOf(root, steps) + "\n" + field
	p := byKey[key]
	if p == nil {
		if len(byKey) >= mostPaths {
			return false
		}
		for i := range steps[:max(len(steps)-1, 0)] {
			if !steps[i+1].Gap {
				steps[i].Field = h.field(g, way[lasts[i]], way[lasts[i]+1])
			}
		}
		p = &profile.HeapPath{Root: root, Static: field, Steps: steps}
		byKey[key] = p
	}
	o, _ := g.Object(n)
	p.Objects.Add(profile.HeapAmount{Count: 1, Bytes: o.Size})
	return true
}

func keyOf(root profile.HeapRoot, steps []profile.HeapStep) string {
	var b strings.Builder
	b.WriteString(string(root))
	for i := range steps {
		if b.WriteByte('\n'); steps[i].Gap {
			b.WriteByte(0)
		}
		b.WriteString(steps[i].Type)
	}
	return b.String()
}

// field is in which field an object refers to another; empty: that is not known, because both have moved since, say.
func (h *heapWalk) field(g *heap.Graph, from, to int) string {
	a, _ := g.Object(from)
	b, _ := g.Object(to)
	h.p.Engine.Cache.Invalidate()
	class, err := h.p.Runtime.Objects.Class(a.Addr)
	if err != nil || class.Table != a.Table.Addr {
		return ""
	}
	field, err := h.p.Runtime.Objects.RefersTo(a.Addr, class, b.Addr)
	if err != nil {
		return ""
	}
	return field
}
