package heap

import (
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
)

func (h *handleReader) readTable(table arch.Addr) error {
	first, layout, err := h.firstSegment(table)
	if err != nil {
		return err
	}
	for at := first; at != 0; {
		if h.seen[at] || len(h.seen) >= maxHandleSegments {
			return fmt.Errorf("%w: a circle of segments of handles, or more than %d", ErrUnknown, maxHandleSegments)
		}
		h.seen[at] = true
		if at, err = h.readSegment(at, table, layout); err != nil {
			return err
		}
	}
	return nil
}

// firstSegment finds the first segment of a table, and the table's layout.
func (h *handleReader) firstSegment(table arch.Addr) (arch.Addr, *handleLayout, error) {
	for i := range h.layouts {
		l := &h.layouts[i]
		at, err := h.mem.Pointer(table + l.first)
		if err != nil {
			return 0, nil, err
		}
		if at == 0 || at%segmentSize != 0 {
			continue
		}
		if owner, err := h.mem.Pointer(at + l.owner()); err == nil && owner == table {
			return at, l, nil
		}
	}
	return 0, nil, fmt.Errorf("%w: no handles in the table at %v", ErrUnknown, table)
}

// owner returns the offset in a segment of the table's address.
func (l *handleLayout) owner() arch.Addr { return l.next + 8 }

// readSegment reads the handles of a segment, and returns the next segment.
func (h *handleReader) readSegment(at, table arch.Addr, l *handleLayout) (next arch.Addr, err error) {
	if h.buf == nil {
		h.buf = make([]byte, segmentSize)
	}
	head := h.buf[:segmentHead]
	if err := h.mem.ReadMemory(head, at); err != nil {
		return 0, err
	}
	owner := l.owner()
	word := func(off arch.Addr) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(head[off:])) }
	if word(owner) != table {
		return 0, fmt.Errorf("%w: handles at %v belong to no table", ErrUnknown, at)
	}
	blocks := min(int(head[owner+10]), blocksOfSegment) // bEmptyLine: blocks from here on are unused
	values := h.buf[segmentHead : segmentHead+8*handlesOfBlock*blocks]
	if err := h.mem.ReadMemory(values, at+segmentHead); err != nil {
		return 0, err
	}
	for b := range blocks {
		if kind := HandleKind(head[blockTypes+b]); kind < handleKinds {
			if err := h.readBlock(at, b, kind); err != nil {
				return 0, err
			}
		}
	}
	return word(l.next), nil
}

// readBlock reads the handles of a block of the segment in the buffer.
func (h *handleReader) readBlock(at arch.Addr, b int, kind HandleKind) error {
	more := int(h.buf[blockData+b])
	for i := range handlesOfBlock {
		off := segmentHead + 8*(b*handlesOfBlock+i)
		obj := arch.Addr(binary.LittleEndian.Uint64(h.buf[off:]))
		if obj == 0 {
			continue
		}
		if len(h.out) >= maxHandles {
			return fmt.Errorf("%w: more than %d handles", ErrUnknown, maxHandles)
		}
		one := Handle{At: at + arch.Addr(off), Object: obj, Kind: kind}
		if from := segmentHead + 8*(more*handlesOfBlock+i); kind == Dependent && more < blocksOfSegment {
			one.Secondary = arch.Addr(binary.LittleEndian.Uint64(h.buf[from:]))
		}
		h.out = append(h.out, one)
	}
	return nil
}
