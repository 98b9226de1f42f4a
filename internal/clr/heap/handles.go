package heap

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Handles lie in tables. The collector's map leads to buckets, a bucket to a table for each of its heaps, a table to
// its segments. A segment has blocks of 64 handles of one kind, behind a record of each block.
//
// Sources (dotnet/runtime): the way to the tables is part of the collector's description of itself
// (src/coreclr/gc/gcinterface.dac.h, dac_handle_table_map, dac_handle_table_bucket). The contents of a table are part
// of the description since .NET 11 only, and only in part (gc/handletablepriv.h, HandleTable, TableSegment;
// gc/handletableconstants.h). So the reader accepts a segment only if the segment leads back to the table.
const (
	mapNext  = 8 // dac_handle_table_map: buckets, the next map, the number of buckets
	mapCount = 16

	blocksOfSegment = 120
	handlesOfBlock  = 64
	blockTypes      = 1560 // TableSegment.rgBlockType
	blockData       = 1680 // rgUserData: the block with more data of each handle
	segmentTail     = 1920 // the rest depends on the number of types
	segmentHead     = 4096 // the handles begin here
	segmentSize     = 1 << 16
)

// handlePlaces is the place of the handle tables.
type handlePlaces struct {
	first      arch.Addr // map of tables
	processors arch.Addr // address of their number; 0: not known. With several heaps, a bucket has a table for each
	layouts    []handleLayout
}

// handleLayout has the offsets that differ between collectors: of a table's first segment, and of a segment's next
// segment.
type handleLayout struct{ first, next arch.Addr }

// tableHandles are the layouts of collectors without the two offsets in their descriptions. A table begins with 12
// flags, or with 13 flags and a gap. A segment has two bytes and four bytes for each of as many types in front of the
// next segment's address.
var tableHandles = []handleLayout{{48, segmentTail + 6*12}, {56, segmentTail + 6*13}}

// describedHandles reads the two offsets from a collector's descriptor. All other layout facts must be the known
// ones.
func describedHandles(d *contract.Descriptor) (handleLayout, error) {
	var l struct {
		First    uint32 `clr:"HandleTable.SegmentList"`
		Next     uint32 `clr:"TableSegment.NextSegment"`
		Data     uint32 `clr:"TableSegment.RgUserData"`
		Tail     uint32 `clr:"TableSegment.RgTail"`
		Values   uint32 `clr:"TableSegment.RgValue"`
		MapNext  uint32 `clr:"HandleTableMap.Next"`
		Buckets  uint32 `clr:"HandleTableMap.BucketsPtr"`
		Table    uint32 `clr:"HandleTableBucket.Table"`
		Size     uint64 `global:"HandleSegmentSize"`
		Blocks   uint64 `global:"HandleBlocksPerSegment"`
		PerBlock uint64 `global:"HandlesPerBlock"`
	}
	if err := d.Bind(&l); err != nil {
		return handleLayout{}, err
	}
	if l.Data != blockData || l.Tail != segmentTail || l.Values != segmentHead || l.MapNext != mapNext ||
		l.Buckets != 0 ||
		l.Table != 0 || l.Size != segmentSize || l.Blocks != blocksOfSegment || l.PerBlock != handlesOfBlock ||
		l.Next > segmentHead-32 {
		return handleLayout{}, errors.New("its tables of handles are others")
	}
	return handleLayout{arch.Addr(l.First), arch.Addr(l.Next)}, nil
}

// Bounds of handles.
const (
	maxHandles        = 1 << 21
	maxHandleMaps     = 1 << 8
	maxBuckets        = 1 << 10 // of one map
	maxTableHeaps     = 1 << 10
	maxHandleTables   = 1 << 14 // handle tables in all
	maxHandleSegments = 1 << 15 // segments in all
)

// HandleKind is the kind of a handle (src/coreclr/gc/gcinterface.h, HandleType).
type HandleKind uint8

// The kinds of handles. Weak handles keep nothing.
const (
	WeakShort HandleKind = iota
	WeakLong
	Strong
	PinnedHandle
	VariableHandle
	RefCounted
	Dependent
	AsyncPinned
	SizedRef
	WeakNativeCOM
	WeakInterior
	handleKinds // kinds from here on are unknown
)

// Handle is a handle and its object.
type Handle struct {
	At, Object arch.Addr
	Kind       HandleKind
	Secondary  arch.Addr // of a Dependent handle: an object that Object keeps as long as Object is there; 0: nothing
}

// Keeps reports whether the handle keeps its object from being collected. A RefCounted handle does as long as native
// code uses the handle.
func (h *Handle) Keeps() bool {
	switch h.Kind {
	case Strong, PinnedHandle, VariableHandle, RefCounted, AsyncPinned, SizedRef:
		return true
	}
	return false
}

// Handles returns the handles that lead to objects. Even with an error, Handles returns the handles that could be
// read. While the program runs, the list belongs to no single moment.
func (r *Reader) Handles(mem target.Memory) ([]Handle, error) {
	now := target.NewReader(mem)
	var l look
	if err := r.look(now, &l); err != nil {
		return nil, err
	}
	t := &r.places.handles
	h := handleReader{mem: now, layouts: t.layouts, seen: map[arch.Addr]bool{}}
	err := h.countTables(t.processors, len(l.heaps), r.places.count != 0)
	at := t.first
	if err == nil && at == 0 {
		err = ErrUnknown
	}
	for n := 0; err == nil && at != 0; n++ {
		if n == maxHandleMaps {
			return h.out, fmt.Errorf("%w: more than %d maps of handles", ErrUnknown, n)
		}
		at, err = h.readMap(at)
	}
	return h.out, err
}

type handleReader struct {
	mem     *target.Reader
	layouts []handleLayout
	out     []Handle
	buf     []byte

	certain  int                // tables that each bucket has
	possible int                // tables that each bucket can have
	tables   int                // tables that were read
	seen     map[arch.Addr]bool // segments that were read
}

// countTables finds the number of tables in a bucket: one, or with several heaps one for each processor
// (gc/objecthandle.cpp, getNumberOfSlots). The number of heaps can have fallen since a handle was made. Where the
// number of processors is not known, an address is a table if a segment leads back to the address.
func (h *handleReader) countTables(processors arch.Addr, heaps int, several bool) error {
	h.certain, h.possible = heaps, heaps
	switch {
	case !several:
	case processors == 0:
		h.possible = maxTableHeaps
	default:
		n, err := h.mem.Uint32(processors)
		if err != nil {
			return err
		}
		h.certain = max(heaps, int(min(n, maxTableHeaps)))
		h.possible = h.certain
	}
	return nil
}

// readMap reads the tables of a map, and returns the next map.
func (h *handleReader) readMap(at arch.Addr) (next arch.Addr, err error) {
	buckets, err := h.mem.Pointer(at)
	if err != nil {
		return 0, err
	}
	if next, err = h.mem.Pointer(at + mapNext); err != nil {
		return 0, err
	}
	count, err := h.mem.Uint32(at + mapCount)
	if err != nil {
		return 0, err
	}
	for i := range arch.Addr(min(count, maxBuckets)) {
		bucket, err := h.mem.Pointer(buckets + 8*i)
		if err != nil {
			return next, nil // the number of buckets counts all maps so far
		}
		if bucket == 0 {
			continue
		}
		if err := h.readBucket(bucket); err != nil {
			return 0, err
		}
	}
	return next, nil
}

func (h *handleReader) readBucket(at arch.Addr) error {
	tables, err := h.mem.Pointer(at)
	if err != nil {
		return err
	}
	for i := range min(h.possible, maxTableHeaps) {
		table, err := h.mem.Pointer(tables + 8*arch.Addr(i))
		switch {
		case i >= h.certain && (err != nil || !h.isTable(table)):
			return nil
		case err != nil:
			return err
		case table == 0:
			continue
		}
		if h.tables++; h.tables > maxHandleTables {
			return fmt.Errorf("%w: more than %d tables of handles", ErrUnknown, maxHandleTables)
		}
		if err := h.readTable(table); err != nil {
			return err
		}
	}
	return nil
}

// isTable reports whether a handle table that was not read yet is at an address.
func (h *handleReader) isTable(at arch.Addr) bool {
	if at == 0 || at%8 != 0 {
		return false
	}
	first, _, err := h.firstSegment(at)
	return err == nil && !h.seen[first]
}
