// Package heap reads which memory the garbage collector has given to objects.
//
// The collector moves objects. What it leaves behind looks like an object until the memory is used again, and
// a frame may still refer to it in a place that it needs no more. So an address that leads to what looks like
// an object is one only if it lies in the allocated part of a segment, and objects lead to it from there on.
//
// Sources (dotnet/runtime): the collector describes itself for debuggers, since .NET 11 in a data descriptor of its own
// (src/coreclr/gc/datadescriptor/datadescriptor.inc), before in a table with a version of its own
// (src/coreclr/gc/gcinterface.dacvars.def, gcinterface.dac.h, dac_gcheap_fields.h, dac_generation_fields.h).
package heap

import (
	"cmp"
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// ErrUnknown: the collector's description of itself is missing, of another version, or contradicts itself.
var ErrUnknown = errors.New("the layout of the heap is not known")

// Bounds.
const (
	maxGenerations = 16
	maxSize        = 1 << 12
	maxNode        = 1 << 8
	maxOffset      = 1 << 20
	maxHeaps       = 1 << 10
	maxSegments    = 1 << 17
	maxAddress     = 1 << 57 // of a user's program, with five levels of page tables
)

// Segment is a piece of memory with objects.
type Segment struct {
	Start, End arch.Addr // of the allocated part
	Frozen     bool      // of objects that are never collected: it lies apart from the others

	at    arch.Addr // of what the collector says of it
	limit arch.Addr // of the memory that it may grow to
	seen  int       // the look in which End was read last
}

// Limit is the end of the memory that the segment may grow to.
func (s *Segment) Limit() arch.Addr { return s.limit }

// Reader reads the heap of one runtime. It is not safe for concurrent use.
type Reader struct {
	mem      *target.Reader
	l        layout
	contexts contextLayout

	own      *contract.Descriptor // of the runtime; the collector's own is found by it
	places   *places              // nil: not read yet
	strange  error                // why they never will be
	now      look
	kept     look // of which segments and trails are
	segments []Segment
	lost     error                // why a dump has no segments
	growing  []int                // of each heap the segment that is being allocated from; -1: none
	trails   map[arch.Addr]*trail // by the start of the segment
	sizes    map[arch.Addr]size   // by MethodTable
	recent   [recentSizes]mtSize  // the same, for what is asked for again and again
	chunk    []byte               // what a trail has read last
	still    bool                 // the heap never changes
	looks    int                  // how often Begin was called
	left     int64                // bytes that may still be walked in this look
	budget   int64                // and in this snapshot
}

type layout struct {
	Vars     arch.Addr `global:"GCDacGlobals,optional"`
	Untag    uint64    `global:"ObjectToMethodTableUnmask,optional"`
	Flags    uint32    `clr:"MethodTable.MTFlags,optional"`
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

// Segments returns the heap's segments, by address. While the program runs they are those of no single moment.
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

// Known reports whether the collector of this runtime describes itself in a way that is known.
func (r *Reader) Known() bool {
	_, ok := r.Moving()
	return ok
}

// Strange is why the heap cannot be read, ever; nil: it can, or the collector has not started.
func (r *Reader) Strange() error {
	_, _ = r.described()
	return r.strange
}

// Moving is where the collector counts the reasons why objects may not be where references say, in 4 bytes; false:
// that is not known. The count is not 0 from before objects get new addresses until all references to them have been
// updated (gc.cpp, gc1; gcscan.cpp, GcRuntimeStructuresValid).
func (r *Reader) Moving() (arch.Addr, bool) {
	t, err := r.described()
	if err != nil || t.invalid == 0 {
		return 0, false
	}
	return t.invalid, true
}

// Settled reports whether the collector is moving no objects now, as far as mem has it: the copy of a moment, or
// memory that is read anew. It is false where that is not known.
func (r *Reader) Settled(mem target.Memory) bool {
	at, ok := r.Moving()
	if !ok {
		return false
	}
	reasons, err := target.NewReader(mem).Uint32(at)
	return err == nil && reasons == 0
}

// Contains reports whether an address lies in one of some segments, which are sorted.
func Contains(segments []Segment, at arch.Addr) bool { return find(segments, at) >= 0 }

// Contains reports whether an address lies in one of the heap's segments, as of the last Begin.
func (r *Reader) Contains(at arch.Addr) bool { return r.find(at) >= 0 }

// find is find in the segments of the heap. Some grow without a collection: those of objects that never move, for
// example.
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

// find returns the segment that an address lies in; -1: none.
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
