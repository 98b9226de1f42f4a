package heap

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Handles are kept in tables: the collector's map leads to buckets, a bucket to a table for each of its heaps, a table
// to its segments. A segment has blocks of 64 handles of one kind, and in front of them what it says of each block.
//
// Sources (dotnet/runtime): the way to the tables is part of the collector's description of itself
// (src/coreclr/gc/gcinterface.dac.h, dac_handle_table_map, dac_handle_table_bucket), what is in them is not
// (gc/handletablepriv.h, HandleTable, TableSegment; gc/handletableconstants.h). So a segment is believed only if it
// leads back to its table.
const (
	varHandleTables = 232 // in the collector's table

	mapNext  = 8 // dac_handle_table_map: buckets, the next map, how many there are
	mapCount = 16

	tableSegments    = 48 // HandleTable.pSegmentList: behind twelve flags, or thirteen and a gap
	tableSegmentsNew = 56

	blocksOfSegment = 120
	handlesOfBlock  = 64
	blockTypes      = 1560 // TableSegment.rgBlockType
	blockData       = 1680 // rgUserData: the block that has more of each handle
	segmentTail     = 1920 // what follows depends on how many types there are
	segmentHead     = 4096 // the handles begin here
	segmentSize     = 1 << 16
)

// Bounds of handles.
const (
	maxHandles        = 1 << 21
	maxHandleMaps     = 1 << 8
	maxBuckets        = 1 << 10 // of one map
	maxTableHeaps     = 1 << 10
	maxHandleTables   = 1 << 14 // of handles, all together
	maxHandleSegments = 1 << 15 // likewise
)

// HandleKind is what a handle does (src/coreclr/gc/gcinterface.h, HandleType).
type HandleKind uint8

// The kinds of handles. Weak ones keep nothing.
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
	handleKinds // those from here on are not known
)

// Handle is a handle and its object.
type Handle struct {
	At, Object arch.Addr
	Kind       HandleKind
	Secondary  arch.Addr // of a Dependent one: what Object keeps as long as it is there itself; 0: nothing
}

// Keeps reports whether the handle keeps its object from being collected. A RefCounted one does as long as native code
// uses it.
func (h *Handle) Keeps() bool {
	switch h.Kind {
	case Strong, PinnedHandle, VariableHandle, RefCounted, AsyncPinned, SizedRef:
		return true
	}
	return false
}

// Handles returns the handles that lead to objects. What could be read of them is returned even with an error. While
// the program runs they are those of no single moment.
func (r *Reader) Handles(mem target.Memory) ([]Handle, error) {
	t, err := r.describe(mem)
	if err != nil {
		return nil, err
	}
	h := handleReader{mem: t.r.mem, seen: map[arch.Addr]bool{}}
	at, err := t.variable(varHandleTables)
	for n := 0; err == nil && at != 0; n++ {
		if n == maxHandleMaps {
			return h.out, fmt.Errorf("%w: more than %d maps of handles", ErrUnknown, n)
		}
		at, err = h.readMap(at, max(len(t.heaps), 1))
	}
	return h.out, err
}

// describe reads what the collector says of itself now.
func (r *Reader) describe(mem target.Memory) (*table, error) {
	if r.l.Vars == 0 {
		return nil, ErrUnknown
	}
	now := &Reader{mem: target.NewReader(mem), l: r.l}
	vars, err := now.mem.Pointer(r.l.Vars)
	if err != nil {
		return nil, err
	}
	if vars == 0 {
		return nil, fmt.Errorf("%w: the collector has not started", ErrUnknown)
	}
	t := &table{r: now, vars: vars}
	return t, t.read()
}

// handleReader collects handles.
type handleReader struct {
	mem *target.Reader
	out []Handle
	buf []byte

	tables int                // that were read
	seen   map[arch.Addr]bool // segments that were read
}

// readMap reads the tables that a map leads to, of so many heaps, and returns the next map.
func (h *handleReader) readMap(at arch.Addr, heaps int) (next arch.Addr, err error) {
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
			return next, nil // the number is that of all maps so far
		}
		if bucket == 0 {
			continue
		}
		if err := h.readBucket(bucket, heaps); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// readBucket reads the tables of a bucket: one for each heap.
func (h *handleReader) readBucket(at arch.Addr, heaps int) error {
	tables, err := h.mem.Pointer(at)
	if err != nil {
		return err
	}
	for i := range arch.Addr(min(heaps, maxTableHeaps)) {
		table, err := h.mem.Pointer(tables + 8*i)
		if err != nil {
			return err
		}
		if table == 0 {
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
