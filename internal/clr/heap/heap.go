// Package heap reads which memory the garbage collector has given to objects.
//
// The collector moves objects. What it leaves behind looks like an object until the memory is used again, and
// a frame may still refer to it in a place that it needs no more. So an address that leads to what looks like
// an object is one only if it lies in the allocated part of a segment, and objects lead to it from there on.
//
// Sources (dotnet/runtime): the collector describes itself for debuggers, in a table with a version of its own
// (src/coreclr/gc/gcinterface.dacvars.def, gcinterface.dac.h, dac_gcheap_fields.h, dac_generation_fields.h).
package heap

import (
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// ErrUnknown: the collector's description of itself is missing, of another version, or contradicts itself.
var ErrUnknown = errors.New("the layout of the heap is not known")

// The table (gcinterface.dacvars.def): version, then values and addresses of variables, in bytes.
const (
	varGenerationSize   = 8
	varGenerations      = 16
	varGenerationTable  = 48
	varBackground       = 72
	varEphemeral        = 80
	varAllocAllocated   = 120
	varHeapCount        = 176
	varHeaps            = 184
	varInvalid          = 192
	varHeapFields       = 240
	varGenerationFields = 248
	varsLen             = 256

	majorVersion = 2 // changes with the meaning of what is there
)

// Places in the lists of offsets (dac_gcheap_fields.h, dac_generation_fields.h).
const (
	heapAllocAllocated  = 0
	heapEphemeral       = 1
	heapGenerationTable = 18
	generationSegment   = 1
)

// dac_heap_segment (gcinterface.dac.h).
const (
	segmentAllocated = 0
	segmentReserved  = 16
	segmentMem       = 32
	segmentNext      = 48
	segmentLen       = 56
)

// Bounds.
const (
	maxGenerations = 16
	maxSize        = 1 << 12
	maxOffset      = 1 << 20
	maxHeaps       = 1 << 10
	maxSegments    = 1 << 17
	maxAddress     = 1 << 57 // of a user's program, with five levels of page tables
)

// Segment is a piece of memory with objects.
type Segment struct {
	Start, End arch.Addr // of the allocated part

	at    arch.Addr // of what the collector says of it
	limit arch.Addr // of the memory that it may grow to
	seen  int       // the look in which End was read last
}

// Reader reads the heap of one runtime. It is not safe for concurrent use.
type Reader struct {
	mem    *target.Reader
	l      layout
	moving arch.Addr // see Moving; 0: not found yet

	table    *table // nil: not read yet
	now      look
	kept     look // of which segments and walks are
	segments []Segment
	growing  []int               // of each heap the segment that is being allocated from; -1: none
	walks    map[arch.Addr]*walk // by the start of the segment
	sizes    map[arch.Addr]size  // by MethodTable
	recent   [recentSizes]mtSize // the same, for what is asked for again and again
	chunk    []byte              // what a walk has read last
	still    bool                // the heap never changes
	looks    int                 // how often Begin was called
	left     int64               // bytes that may still be walked in this look
	budget   int64               // and in this snapshot
}

type layout struct {
	Vars     arch.Addr `global:"GCDacGlobals,optional"`
	Untag    uint64    `global:"ObjectToMethodTableUnmask,optional"`
	Flags    uint32    `clr:"MethodTable.MTFlags,optional"`
	BaseSize uint32    `clr:"MethodTable.BaseSize,optional"`
}

// New binds the heap of the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor) (*Reader, error) {
	r := &Reader{mem: target.NewReader(mem)}
	r.Refill()
	err := d.Bind(&r.l)
	if r.l.Flags == contract.Absent || r.l.BaseSize == contract.Absent {
		r.l.Vars = 0
	}
	return r, err
}

// Known reports whether the collector of this runtime describes itself in a way that is known.
func (r *Reader) Known() bool {
	_, ok := r.Moving()
	return ok
}

// Moving is where the collector counts the reasons why objects may not be where references say, in 4 bytes; false:
// that is not known. The count is not 0 from before objects get new addresses until all references to them have been
// updated (gc.cpp, gc1; gcscan.cpp, GcRuntimeStructuresValid).
func (r *Reader) Moving() (arch.Addr, bool) {
	if r.moving != 0 || r.l.Vars == 0 {
		return r.moving, r.moving != 0
	}
	vars, err := r.mem.Pointer(r.l.Vars)
	if err != nil || vars == 0 {
		return 0, false
	}
	version, err := r.mem.Uint16(vars)
	if err != nil || version&0xff != majorVersion {
		return 0, false
	}
	if at, err := r.mem.Pointer(vars + varInvalid); err == nil {
		r.moving = at
	}
	return r.moving, r.moving != 0
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

// Contains reports whether an address lies in one of the heap's segments, as of the last Begin.
func (r *Reader) Contains(at arch.Addr) bool { return r.find(at) >= 0 }

// find is find in the segments of the heap. Some grow without a collection: those of objects that never move, for example.
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
	if end, err := r.mem.Pointer(s.at + segmentAllocated); err == nil && end > s.End && end <= s.limit {
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
