package session

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
)

// statics finds the names of static fields by where they lie.
type statics struct {
	bases []staticBase         // by address
	names map[arch.Addr]string // of fields, by the object that they refer to
}

// staticBase is where the static fields of a class begin that are references.
type staticBase struct{ at, mt arch.Addr }

// Bounds of a search for static fields.
const (
	maxStaticBases = 1 << 18
	maxTable       = 1 << 20 // bytes of a table of static fields
)

// findStatics reads where the static fields of classes are: of all modules that have objects on the heap.
func (h *heapWalk) findStatics(g *heap.Graph) *statics {
	s := &statics{names: map[arch.Addr]string{}}
	modules := map[arch.Addr]bool{}
	for _, t := range g.Tables {
		if c, err := h.p.Runtime.Types.Read(t.Addr); err == nil && c.Module != 0 && !t.Free {
			modules[c.Module] = true
		}
	}
	for m := range modules {
		defined, _ := h.p.Runtime.Types.Defined(m) // what could be read counts
		for _, mt := range defined {
			if at, ok := h.p.Runtime.Types.Statics(mt); ok && len(s.bases) < maxStaticBases {
				s.bases = append(s.bases, staticBase{at, mt})
			}
		}
	}
	slices.SortFunc(s.bases, func(a, b staticBase) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	return s
}

// staticField names the static field by which a table of them refers to an object; empty: that is not known.
func (h *heapWalk) staticField(table, to heap.Object) string {
	if table.Size > maxTable {
		return ""
	}
	b := make([]byte, table.Size)
	if h.p.from.ReadMemory(b, table.Addr) != nil {
		return ""
	}
	for i := 16; i+8 <= len(b); i += 8 {
		if arch.Addr(binary.LittleEndian.Uint64(b[i:])) != to.Addr {
			continue
		}
		if name := h.fieldAt(table.Addr + arch.Addr(i)); name != "" {
			return name
		}
	}
	return ""
}

// fieldAt names the static field at an address.
func (h *heapWalk) fieldAt(slot arch.Addr) string {
	bases := h.static.bases
	i, found := slices.BinarySearchFunc(bases, slot, func(b staticBase, at arch.Addr) int {
		if b.at < at {
			return -1
		}
		if b.at > at {
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 {
		return ""
	}
	rows, err := h.p.Runtime.Names.FieldNames(bases[i].mt)
	if err != nil {
		return ""
	}
	fields, err := h.p.Runtime.Types.Fields(bases[i].mt, rows)
	if err != nil {
		return ""
	}
	for _, f := range fields {
		if f.Static && !f.Local && f.Reference() && bases[i].at+arch.Addr(f.Offset) == slot {
			return h.name(bases[i].mt).Display + "." + rows[f.RID]
		}
	}
	return ""
}

// knownField is staticField, once for each object that a static field refers to.
func (h *heapWalk) knownField(table, to heap.Object) string {
	name, ok := h.static.names[to.Addr]
	if !ok {
		name = h.staticField(table, to)
		h.static.names[to.Addr] = name
	}
	return name
}
