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
	"encoding/binary"
	"errors"
	"fmt"
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
	mem      *target.Reader
	l        layout
	contexts contextLayout
	moving   arch.Addr // see Moving; 0: not found yet

	places   *places // nil: not read yet
	now      look
	kept     look // of which segments and trails are
	segments []Segment
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
	r := &Reader{mem: target.NewReader(mem)}
	r.Refill()
	if err := d.Bind(&r.contexts); err != nil {
		return nil, err
	}
	err := d.Bind(&r.l)
	if r.l.Flags == contract.Absent || r.l.BaseSize == contract.Absent {
		r.l.Vars = 0
	}
	return r, err
}

// Segments returns the heap's segments, by address. While the program runs they are those of no single moment.
func (r *Reader) Segments() ([]Segment, error) {
	if r.l.Vars == 0 {
		return nil, ErrUnknown
	}
	vars, err := r.mem.Pointer(r.l.Vars)
	if err != nil {
		return nil, err
	}
	t := table{r: r, vars: vars}
	if err := t.read(); err != nil {
		return nil, err
	}
	var out []Segment
	for _, h := range t.heaps {
		if out, err = t.segments(out, h); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Segment) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	return out, nil
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

// table is what the collector says of itself.
type table struct {
	r    *Reader
	vars arch.Addr

	size, generations uint64
	segment           arch.Addr // offset of a generation's first segment
	heaps             []oneHeap
	server            []arch.Addr // where each of heaps is; nil: there is one only, which lies nowhere
}

// oneHeap is one of the heaps: the collector of servers has several.
type oneHeap struct{ generations, ephemeral, allocated arch.Addr }

// variable reads the address of a variable.
func (t *table) variable(off arch.Addr) (arch.Addr, error) {
	at, err := t.r.mem.Pointer(t.vars + off)
	if err == nil && at == 0 {
		err = ErrUnknown
	}
	return at, err
}

func (t *table) read() error {
	version, err := t.r.mem.Uint16(t.vars)
	if err != nil {
		return err
	}
	if version&0xff != majorVersion {
		return fmt.Errorf("%w: version %d.%d", ErrUnknown, version&0xff, version>>8)
	}
	if t.size, err = t.r.mem.Uint64(t.vars + varGenerationSize); err != nil {
		return err
	}
	if t.generations, err = t.r.mem.Uint64(t.vars + varGenerations); err != nil {
		return err
	}
	if t.size > maxSize || t.generations > maxGenerations {
		return fmt.Errorf("%w: %d generations of %d bytes", ErrUnknown, t.generations, t.size)
	}
	fields, err := t.variable(varGenerationFields)
	if err != nil {
		return err
	}
	if t.segment, err = t.offset(fields, generationSegment); err != nil {
		return err
	}
	return t.readHeaps()
}

// offset reads an entry of a list of offsets.
func (t *table) offset(list arch.Addr, i arch.Addr) (arch.Addr, error) {
	n, err := t.r.mem.Uint32(list + 4*i)
	if err == nil && n > maxOffset {
		err = ErrUnknown
	}
	return arch.Addr(n), err
}

func (t *table) readHeaps() error {
	count := uint32(0)
	if at, err := t.r.mem.Pointer(t.vars + varHeapCount); err != nil {
		return err
	} else if at != 0 {
		if count, err = t.r.mem.Uint32(at); err != nil {
			return err
		}
	}
	switch {
	case count == 0:
		return t.readOnlyHeap()
	case count > maxHeaps:
		return fmt.Errorf("%w: %d heaps", ErrUnknown, count)
	}
	return t.readServerHeaps(int(count))
}

func (t *table) readOnlyHeap() error {
	var h oneHeap
	var err error
	if h.generations, err = t.variable(varGenerationTable); err != nil {
		return err
	}
	for _, v := range []struct {
		off arch.Addr
		to  *arch.Addr
	}{{varEphemeral, &h.ephemeral}, {varAllocAllocated, &h.allocated}} {
		at, err := t.variable(v.off)
		if err != nil {
			return err
		}
		if *v.to, err = t.r.mem.Pointer(at); err != nil {
			return err
		}
	}
	t.heaps = []oneHeap{h}
	return nil
}

func (t *table) readServerHeaps(n int) error {
	fields, err := t.variable(varHeapFields)
	if err != nil {
		return err
	}
	var off [3]arch.Addr
	for i, f := range []arch.Addr{heapGenerationTable, heapEphemeral, heapAllocAllocated} {
		if off[i], err = t.offset(fields, f); err != nil {
			return err
		}
	}
	list, err := t.variable(varHeaps)
	if err != nil {
		return err
	}
	if list, err = t.r.mem.Pointer(list); err != nil {
		return err
	}
	for i := range n {
		at, err := t.r.mem.Pointer(list + 8*arch.Addr(i))
		if err != nil {
			return err
		}
		t.server = append(t.server, at)
		h := oneHeap{generations: at + off[0]}
		if h.ephemeral, err = t.r.mem.Pointer(at + off[1]); err != nil {
			return err
		}
		if h.allocated, err = t.r.mem.Pointer(at + off[2]); err != nil {
			return err
		}
		t.heaps = append(t.heaps, h)
	}
	return nil
}

// segments appends the segments of a heap.
func (t *table) segments(out []Segment, h oneHeap) ([]Segment, error) {
	for g := range arch.Addr(t.generations) {
		at, err := t.r.mem.Pointer(h.generations + g*arch.Addr(t.size) + t.segment)
		if err != nil {
			return nil, err
		}
		for at != 0 {
			if len(out) >= maxSegments {
				return nil, fmt.Errorf("%w: more than %d segments", ErrUnknown, maxSegments)
			}
			b, err := t.r.mem.Bytes(at, segmentLen)
			if err != nil {
				return nil, err
			}
			word := func(off int) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(b[off:])) }
			s := Segment{Start: word(segmentMem), End: word(segmentAllocated)}
			reserved := word(segmentReserved)
			if at == h.ephemeral {
				s.End = h.allocated // what lies behind is left over from before the last collection
			}
			if s.End < s.Start || s.End > reserved || s.End > maxAddress {
				return nil, fmt.Errorf("%w: a segment from %v to %v", ErrUnknown, s.Start, s.End)
			}
			out = append(out, s)
			at = word(segmentNext)
		}
	}
	return out, nil
}
