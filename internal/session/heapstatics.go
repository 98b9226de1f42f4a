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

	table arch.Addr                       // the table that was read last
	slots []byte                          // of it
	known map[arch.Addr]map[uint32]string // names of the static fields that are references, by class and offset
}

// staticBase is where the static fields of a class begin that are references.
type staticBase struct{ at, mt arch.Addr }

// Bounds of a search for static fields.
const (
	maxStaticBases = 1 << 18
	maxModules     = 1 << 14
	maxEqualSlots  = 16      // that refer to one object
	maxKnownFields = 1 << 12 // classes whose fields are kept
	maxTable       = 1 << 20 // bytes of a table of static fields
)

// findStatics reads where the static fields of classes are: of all modules that have objects on the heap.
func (h *heapWalk) findStatics(g *heap.Graph) *statics {
	s := &statics{names: map[arch.Addr]string{}, known: map[arch.Addr]map[uint32]string{}}
	modules := map[arch.Addr]bool{}
	for _, t := range g.Tables {
		c, err := h.p.Runtime.Types.Read(t.Addr)
		if err == nil && c.Module != 0 && !t.Free && len(modules) < maxModules {
			modules[c.Module] = true
		}
	}
	for m := range modules {
		if h.stopped() || len(s.bases) >= maxStaticBases {
			break
		}
		defined, _ := h.p.Runtime.Types.Defined(m) // what could be read counts
		for _, mt := range defined {
			if at, ok := h.p.Runtime.Types.Statics(mt); ok {
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
	b := h.slots(table)
	for i, equal := 16, 0; i+8 <= len(b) && equal < maxEqualSlots; i += 8 {
		if arch.Addr(binary.LittleEndian.Uint64(b[i:])) != to.Addr {
			continue
		}
		equal++
		if name := h.fieldAt(table.Addr + arch.Addr(i)); name != "" {
			return name
		}
	}
	return ""
}

// slots reads a table of static fields; nil: it cannot be read.
func (h *heapWalk) slots(table heap.Object) []byte {
	s := h.static
	if s.table != table.Addr {
		s.table, s.slots = table.Addr, make([]byte, table.Size)
		if h.p.from.ReadMemory(s.slots, table.Addr) != nil {
			s.slots = nil
		}
	}
	return s.slots
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
	off := uint64(slot - bases[i].at)
	if off >= maxTable {
		return ""
	}
	if name, ok := h.staticFields(bases[i].mt)[uint32(off)]; ok {
		return h.name(bases[i].mt).Display + "." + name
	}
	return ""
}

// staticFields are the names of the static fields of a class that are references, by their offsets; nil: they cannot be
// read.
func (h *heapWalk) staticFields(mt arch.Addr) map[uint32]string {
	s := h.static
	if known, ok := s.known[mt]; ok {
		return known
	}
	if len(s.known) >= maxKnownFields {
		clear(s.known)
	}
	s.known[mt] = nil
	rows, err := h.p.Runtime.Names.FieldNames(mt)
	if err != nil {
		return nil
	}
	fields, err := h.p.Runtime.Types.Fields(mt, rows)
	if err != nil {
		return nil
	}
	out := map[uint32]string{}
	for _, f := range fields {
		if f.Static && !f.Local && f.Reference() {
			out[f.Offset] = rows[f.RID]
		}
	}
	s.known[mt] = out
	return out
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
