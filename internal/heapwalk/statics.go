package heapwalk

import (
	"cmp"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
)

// readStatics finds the static fields, once.
func (h *heapWalk) readStatics(g *heap.Graph) {
	switch {
	case h.static != nil:
	case h.p.Runtime == nil:
		h.static = h.aheadStatics()
	default:
		h.p.Engine.Cache.Invalidate()
		h.static = h.findStatics(g)
	}
}

// findStatics finds the addresses of the static fields of classes.
func (h *heapWalk) findStatics(g *heap.Graph) *statics {
	s := &statics{
		known: map[arch.Addr]map[uint32]string{}, own: map[arch.Addr]map[uint32]string{},
		local: map[uint32][]arch.Addr{},
	}
	classes := 0
	for _, m := range h.modules(g) {
		if h.Stopped() || classes >= maxClasses {
			break
		}
		defined, _ := h.p.Runtime.Types.Defined(m) // a partial list counts
		generic, _ := h.p.Runtime.Types.Instantiations(m)
		classes += len(defined) + len(generic)
		for _, mt := range append(defined, generic...) {
			if at, ok := h.p.Runtime.Types.Statics(mt); ok {
				s.bases = append(s.bases, staticBase{at, mt})
			}
			if n, ok := h.p.Runtime.Types.ThreadStatics(mt); ok && len(s.local[n]) < maxEqualSlots {
				s.local[n] = append(s.local[n], mt)
			}
		}
	}
	slices.SortFunc(s.bases, byAddress)
	return s
}

// modules returns the modules of all assemblies, and the modules of the types with objects on the
// heap.
func (h *heapWalk) modules(g *heap.Graph) (out []arch.Addr) {
	all, _ := h.p.Runtime.Inlined.Modules() // a partial list counts
	for _, t := range g.Tables {
		if c, err := h.p.Runtime.Types.Read(t.Addr); err == nil && c.Module != 0 && !t.Free {
			all = append(all, c.Module)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxModules)]
}

// staticField names the first known static field at one of some addresses; empty: none is known.
func (h *heapWalk) staticField(slots []arch.Addr) string {
	for _, at := range slots {
		if name := h.fieldAt(at); name != "" {
			return name
		}
	}
	return ""
}

// fieldAt names the static field at an address.
func (h *heapWalk) fieldAt(slot arch.Addr) string {
	bases := h.static.bases
	i, _ := slices.BinarySearchFunc(bases, slot+1, func(b staticBase, at arch.Addr) int {
		return cmp.Compare(b.at, at)
	})
	if i == 0 {
		return ""
	}
	off := uint64(slot - bases[i-1].at)
	if off >= maxTable {
		return ""
	}
	if h.p.Runtime == nil {
		return h.aheadField(bases[i-1].at, uint32(off))
	}
	for at := bases[i-1].at; i > 0 && bases[i-1].at == at; i-- { // in .NET 8, classes of a module share a base
		if name, ok := h.fieldsOf(bases[i-1].mt, false)[uint32(off)]; ok {
			return h.Name(bases[i-1].mt).Display + "." + name
		}
	}
	return ""
}

// fieldsOf returns the names of the static reference fields of a class, by offset: the fields
// shared by all threads, or the thread-static fields. nil: unreadable.
func (h *heapWalk) fieldsOf(mt arch.Addr, local bool) map[uint32]string {
	s := h.static
	all := s.known
	if local {
		all = s.own
	}
	if known, ok := all[mt]; ok {
		return known
	}
	if len(s.known) >= maxKnownFields {
		clear(s.known)
		clear(s.own)
	}
	s.known[mt], s.own[mt] = nil, nil
	rows, err := h.p.Runtime.Names.FieldNames(mt)
	if err != nil {
		return nil
	}
	fields, err := h.p.Runtime.Types.Fields(mt, rows)
	if err != nil {
		return nil
	}
	shared, own := map[uint32]string{}, map[uint32]string{}
	for _, f := range fields {
		switch {
		case !f.Static || !f.Reference() && !f.Boxed():
		case f.Local:
			own[f.Offset] = rows[f.RID]
		default:
			shared[f.Offset] = rows[f.RID]
		}
	}
	s.known[mt], s.own[mt] = shared, own
	return all[mt]
}

// threadField names the thread-static field at an offset of an array; empty: unknown.
func (h *heapWalk) threadField(array, offset uint32) string {
	name := ""
	for _, mt := range h.static.local[array] {
		if field, ok := h.fieldsOf(mt, true)[offset]; ok {
			if name != "" {
				return "" // two classes cannot have the same array: one of the two has no thread-static fields
			}
			name = h.Name(mt).Display + "." + field
		}
	}
	return name
}
