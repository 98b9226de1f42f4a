// Package heap reads the memory that the garbage collector has given to objects.
//
// The collector moves objects. The old copy looks like an object until the memory is used again, and a dead variable
// of a frame may still refer to the old copy. So an address of an apparent object counts only if the address lies in
// the allocated part of a segment, and a walk of the segment's objects from the segment's beginning meets the
// address.
//
// Sources (dotnet/runtime): the collector describes itself for debuggers. Since .NET 11 the description is a data
// descriptor of the collector's own (src/coreclr/gc/datadescriptor/datadescriptor.inc). Before .NET 11 the
// description is a table with its own version (src/coreclr/gc/gcinterface.dacvars.def, gcinterface.dac.h,
// dac_gcheap_fields.h, dac_generation_fields.h).
package heap

import (
	"cmp"
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// ErrUnknown: the collector's description of itself is missing, has an unknown version, or contradicts itself.
var ErrUnknown = errors.New("the layout of the heap is not known")

// Bounds.
const (
	maxGenerations = 16
	maxSize        = 1 << 12
	maxNode        = 1 << 8
	maxOffset      = 1 << 20
	maxHeaps       = 1 << 10
	maxSegments    = 1 << 17
	maxAddress     = 1 << 57 // of user memory, with five levels of page tables
)

// Segment is a piece of memory with objects.
type Segment struct {
	Start, End arch.Addr // of the allocated part
	Frozen     bool      // objects that are never collected, apart from the others

	at    arch.Addr // address of the collector's record of the segment
	limit arch.Addr // end of the memory that the segment may grow to
	seen  int       // number of the look that read End last
}

// Limit is the end of the memory that the segment may grow to.
func (s *Segment) Limit() arch.Addr { return s.limit }

// Reader reads the heap of one runtime. A Reader is not safe for concurrent use.
type Reader struct {
	mem      *target.Reader
	l        layout
	contexts contextLayout

	own      *contract.Descriptor // of the runtime; leads to the collector's own descriptor
	places   *places              // nil: not read yet
	strange  error                // why places can never be read
	now      look
	again    look // the latest look of Stands or Stamp
	kept     look // the look of segments and trails
	segments []Segment
	lost     error                // why a dump has no segments
	growing  []int                // by heap: the segment that is being allocated from; -1: none
	trails   map[arch.Addr]*trail // by the start of the segment
	sizes    map[arch.Addr]size   // by MethodTable
	recent   [recentSizes]mtSize  // the sizes asked for most often
	chunk    []byte               // the block that a trail has read last
	still    bool                 // the heap never changes
	calm     bool                 // no objects were being moved at the latest Begin
	looks    int                  // calls of Begin
	left     int64                // bytes that may still be walked in the present look
	budget   int64                // bytes that may still be walked in the present snapshot
}

type layout struct {
	Vars     arch.Addr `global:"GCDacGlobals,optional"`
	Untag    uint64    `global:"ObjectToMethodTableUnmask,optional"`
	Flags    uint32    `clr:"MethodTable.MTFlags|MethodTable.Flags,optional"` // Flags in native AOT programs
	BaseSize uint32    `clr:"MethodTable.BaseSize,optional"`
	Free     arch.Addr `global:"FreeObjectMethodTable,optional"`
}

// New binds the heap of the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor) (*Reader, error) {
	r := &Reader{mem: target.NewReader(mem), own: d}
	r.Refill()
	if err := d.Bind(&r.contexts); err != nil {
		return nil, err
	}
	if err := d.Bind(&r.l); err != nil {
		return nil, err
	}
	if r.l.Flags == contract.Absent || r.l.BaseSize == contract.Absent {
		r.strange = ErrUnknown
	}
	return r, nil
}

// Segments returns the heap's segments, by address. While the program runs, the list belongs to no single moment.
func (r *Reader) Segments() ([]Segment, error) {
	var l look
	if err := r.look(r.mem, &l); err != nil {
		return nil, err
	}
	out, err := r.places.list(r.mem, l.heaps)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Segment) int { return cmp.Compare(a.Start, b.Start) })
	return out, nil
}

// Known reports whether the reader knows the collector's description of itself.
func (r *Reader) Known() bool {
	_, ok := r.Moving()
	return ok
}

// Strange returns the reason why the heap can never be read; nil: the heap can be read, or the collector has not
// started.
func (r *Reader) Strange() error {
	_, _ = r.described()
	return r.strange
}

// Moving returns the address of the collector's count of reasons why objects may not lie where references say; false:
// the address is not known. The count has 4 bytes. The count is positive from before objects get new addresses until
// all references to the objects have been updated (gc.cpp, gc1; gcscan.cpp, GcRuntimeStructuresValid).
func (r *Reader) Moving() (arch.Addr, bool) {
	t, err := r.described()
	if err != nil || t.invalid == 0 {
		return 0, false
	}
	return t.invalid, true
}

// Settled reports whether the collector is moving no objects, according to mem. mem is the copy of a moment, or live
// memory. If Moving is not known, Settled returns false.
func (r *Reader) Settled(mem target.Memory) bool {
	at, ok := r.Moving()
	if !ok {
		return false
	}
	reasons, err := target.NewReader(mem).Uint32(at)
	return err == nil && reasons == 0
}

// Contains reports whether one of some sorted segments contains an address.
func Contains(segments []Segment, at arch.Addr) bool { return find(segments, at) >= 0 }

// Contains reports whether one of the heap's segments contains an address, as of the last Begin.
func (r *Reader) Contains(at arch.Addr) bool { return r.find(at) >= 0 }

// find finds the segment of an address. Some segments grow without a collection: segments of objects that never move,
// for example.
func (r *Reader) find(at arch.Addr) int {
	i := find(r.segments, at)
	if i >= 0 {
		return i
	}
	i, _ = slices.BinarySearchFunc(r.segments, at, func(s Segment, at arch.Addr) int {
		if s.End <= at {
			return -1
		}
		return 1
	})
	if i--; i < 0 || at >= r.segments[i].limit || r.segments[i].seen == r.looks || r.still {
		return -1
	}
	s := &r.segments[i]
	s.seen = r.looks
	if end, err := r.mem.Pointer(s.at + arch.Addr(r.places.node.Allocated)); err == nil && end > s.End &&
		end <= s.limit {
		s.End = end
	}
	return find(r.segments, at)
}

// find returns the segment of an address; -1: none.
func find(segments []Segment, at arch.Addr) int {
	i, found := slices.BinarySearchFunc(segments, at, func(s Segment, at arch.Addr) int {
		switch {
		case s.End <= at:
			return -1
		case s.Start > at:
			return 1
		}
		return 0
	})
	if !found {
		return -1
	}
	return i
}
