package heap

import (
	"encoding/binary"
	"fmt"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Each heap has a queue of objects with a finalizer. The queue is an array with a part for each generation, and then
// the objects whose finalizers are to run, critical finalizers first. Only the objects whose finalizers are to run
// are kept by the queue.
//
// Sources (dotnet/runtime): src/coreclr/gc/gcinterface.dac.h (dac_finalize_queue), gc/gcpriv.h and gc/gc.cpp
// (CFinalize, SegQueueLimit).
const (
	readyParts = 2
	maxReady   = 1 << 20
)

// Ready returns the objects whose finalizers are to run; the queue keeps the objects until then.
func (r *Reader) Ready(mem target.Memory) ([]arch.Addr, error) {
	now := target.NewReader(mem)
	var l look
	if err := r.look(now, &l); err != nil {
		return nil, err
	}
	var out []arch.Addr
	for _, h := range l.heaps {
		at, err := now.Pointer(h.queue)
		if err != nil {
			return out, err
		}
		if out, err = r.places.ready(now, at, out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// ready appends the objects of a queue whose finalizers are to run. In front of the array's address and end lie the
// ends of the array's parts: the generations, the oldest first, and then the objects to finalize.
func (t *places) ready(mem *target.Reader, at arch.Addr, out []arch.Addr) ([]arch.Addr, error) {
	parts := t.queueEnds
	b, err := mem.Bytes(at+t.queueAt, 8*(parts+2))
	if err != nil {
		return out, err
	}
	ends := make([]arch.Addr, parts+2)
	for i := range ends {
		ends[i] = arch.Addr(binary.LittleEndian.Uint64(b[8*i:]))
	}
	inOrder := append([]arch.Addr{ends[parts]}, ends[:parts]...)
	inOrder = append(inOrder, ends[parts+1])
	if !slices.IsSorted(inOrder) {
		return out, fmt.Errorf("%w: the queue of finalizers at %v", ErrUnknown, at)
	}
	from, to := ends[parts-readyParts-1], ends[parts-1]
	n := uint64(to-from) / 8
	if n > uint64(maxReady-len(out)) || from%8 != 0 {
		return out, fmt.Errorf("%w: %d objects wait for their finalizers", ErrUnknown, n)
	}
	if b, err = mem.Bytes(from, int(8*n)); err != nil {
		return out, err
	}
	for i := range n {
		if obj := arch.Addr(binary.LittleEndian.Uint64(b[8*i:])); obj != 0 {
			out = append(out, obj)
		}
	}
	return out, nil
}
