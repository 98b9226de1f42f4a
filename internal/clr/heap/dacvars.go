package heap

import (
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// The collector's table for debuggers (gcinterface.dacvars.def) has the version, then values and addresses of
// variables. The offsets are in bytes.
const (
	varGenerationSize   = 8
	varGenerations      = 16
	varGenerationTable  = 48
	varBackground       = 72
	varEphemeral        = 80
	varAllocAllocated   = 120
	varFinalizeQueue    = 144
	varHeapCount        = 176
	varHeaps            = 184
	varInvalid          = 192
	varHandleTables     = 232
	varHeapFields       = 240
	varGenerationFields = 248
	varsLen             = 256

	majorVersion = 2 // changes with the meaning of the entries
)

// Indexes in the lists of offsets (dac_gcheap_fields.h, dac_generation_fields.h).
const (
	heapAllocAllocated  = 0
	heapEphemeral       = 1
	heapFinalizeQueue   = 2
	heapGenerationTable = 18
	generationSegment   = 1
	generationStart     = 2

	noField = ^uint32(0)
)

func (r *Reader) readTable() (*places, error) {
	if r.l.Vars == 0 {
		return nil, ErrUnknown
	}
	vars, err := r.mem.Pointer(r.l.Vars)
	if err != nil {
		return nil, err
	}
	if vars == 0 {
		return nil, errNotStarted
	}
	b, err := r.mem.Bytes(vars, varsLen)
	if err != nil {
		return nil, err
	}
	if version := binary.LittleEndian.Uint16(b); version&0xff != majorVersion {
		return nil, fmt.Errorf("%w: version %d.%d", ErrUnknown, version&0xff, version>>8)
	}
	word := func(off int) arch.Addr { return arch.Addr(binary.LittleEndian.Uint64(b[off:])) }
	t := &places{
		size: uint64(word(varGenerationSize)), generations: uint64(word(varGenerations)), node: tableNode,
		background: word(varBackground), invalid: word(varInvalid), count: word(varHeapCount), heaps: word(varHeaps),
		only: oneHeap{
			word(varGenerationTable), word(varEphemeral), word(varAllocAllocated), word(varFinalizeQueue),
		},
		handles: handlePlaces{first: word(varHandleTables), layouts: tableHandles},
	}
	t.queueEnds = int(min(t.generations, maxGenerations)) + readyParts
	return t, t.readOffsets(r.mem, word(varGenerationFields), word(varHeapFields))
}

// readOffsets reads the lists of the offsets of a generation's fields, and of a heap's fields if there are several
// heaps.
func (t *places) readOffsets(mem *target.Reader, generation, heap arch.Addr) (err error) {
	if t.segment, err = offset(mem, generation, generationSegment); err != nil {
		return err
	}
	if n, err := mem.Uint32(generation + 4*generationStart); err != nil {
		return err
	} else if n != noField {
		if t.start, err = offset(mem, generation, generationStart); err != nil {
			return err
		}
	}
	if t.count == 0 {
		return nil
	}
	for _, f := range []struct {
		to *arch.Addr
		at arch.Addr
	}{
		{&t.fields.generations, heapGenerationTable}, {&t.fields.ephemeral, heapEphemeral},
		{&t.fields.allocated, heapAllocAllocated}, {&t.fields.queue, heapFinalizeQueue},
	} {
		if *f.to, err = offset(mem, heap, f.at); err != nil {
			return err
		}
	}
	return nil
}

// offset reads an entry of a list of offsets.
func offset(mem *target.Reader, list, i arch.Addr) (arch.Addr, error) {
	if list == 0 {
		return 0, ErrUnknown
	}
	n, err := mem.Uint32(list + 4*i)
	if err == nil && n > maxOffset {
		err = ErrUnknown
	}
	return arch.Addr(n), err
}
