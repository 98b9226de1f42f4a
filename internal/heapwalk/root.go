package heapwalk

import (
	"cmp"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/aot"
	"clrsnap/snapshot"
)

// rootsOf are the roots of the heap: everything that keeps objects, other than objects.
type rootsOf struct {
	sure   []uint32 // objects that are certainly kept
	maybe  []uint32 // objects that words of stacks lead to
	by     map[uint32]root
	stacks bool // stacks have been read
	full   bool // some roots are missing: there are too many
}

// root describes the root of one object.
type root struct {
	kind   snapshot.HeapRoot
	slots  []arch.Addr // RootStatic: where the fields are
	handle snapshot.HandleKind
	thread *snapshot.ThreadRef
	array  uint32 // RootThreadStatic: the number of the array, and the offset in the array
	offset uint32
	method string
}

const (
	maxRoots = 1 << 22
	// offset of the first element in an array of references (object.h, PtrArray); fields count from
	// the array's start
	arrayData = 16
)

// add records a root of an object. The first root of an object counts.
func (r *rootsOf) add(to *[]uint32, n int, by root) {
	if _, ok := r.by[uint32(n)]; ok {
		return
	}
	if len(r.by) >= maxRoots {
		r.full = true
		return
	}
	r.by[uint32(n)] = by
	*to = append(*to, uint32(n))
}

// field records that a static field keeps an object. A slot without a field can keep a string as
// well; the field is of interest then.
func (r *rootsOf) field(at arch.Addr, to int) {
	by, ok := r.by[uint32(to)]
	switch {
	case !ok:
		r.add(&r.sure, to, root{kind: snapshot.RootStatic, slots: []arch.Addr{at}})
	case by.kind == snapshot.RootStatic && len(by.slots) < maxEqualSlots:
		by.slots = append(by.slots, at)
		r.by[uint32(to)] = by
	}
}

// slot is a static field, as of before the walk.
type slot struct{ table, at, to arch.Addr }

// statics finds the names of static fields by address.
type statics struct {
	bases []staticBase                    // by address
	known map[arch.Addr]map[uint32]string // names of static reference fields, by class and offset
	own   map[arch.Addr]map[uint32]string // likewise of thread-static fields
	local map[uint32][]arch.Addr          // the possible classes of thread-static fields, by the number of the array
	ahead map[arch.Addr]aot.StaticFields  // of a native AOT program, by base
}

// staticBase is the address of the static reference fields of a class.
type staticBase struct{ at, mt arch.Addr }

// Bounds of a search for static fields.
const (
	maxClasses     = 1 << 19 // classes that can have static fields
	maxModules     = 1 << 14
	maxEqualSlots  = 16      // fields that refer to one object
	maxKnownFields = 1 << 12 // classes with remembered fields
	maxTable       = 1 << 20 // bytes of the static fields of a class
)

func byAddress(a, b staticBase) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.mt, b.mt)) }
