package heapwalk

import (
	"slices"
	"sort"

	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Memory says where the process's memory in RAM is. Nothing is stopped. The error ErrNoHeap means a dump, or a
// collector that is not understood.
func Memory(p *session.Process) (snapshot.Memory, error) {
	if p.Live == nil || p.Managed == nil || p.Managed.Heap == nil {
		return snapshot.Memory{}, session.ErrNoHeap
	}
	stacks, err := stackPointers(p)
	if err != nil {
		return snapshot.Memory{}, err
	}
	var list []resident
	if err := p.Live.Dir().EachResident(func(m *target.Mapping, bytes int64) {
		list = append(list, resident{*m, bytes})
	}); err != nil {
		return snapshot.Memory{}, err
	}
	p.Engine.Begin() // after the mappings: the collector adds segments all the time, and hardly takes one away
	segments, err := p.Managed.Heap.Segments()
	if err != nil {
		return snapshot.Memory{}, err
	}
	areas := make([]area, len(segments))
	for i := range segments {
		areas[i] = area{span{segments[i].Start, segments[i].Limit()}, segments[i].Frozen}
	}
	return partition(list, managedSpans(list, areas), stacks), nil
}

// resident is a mapping with the number of its bytes in RAM.
type resident struct {
	target.Mapping
	bytes int64
}

type span struct{ start, end arch.Addr }

// area is the memory of a segment of the heap.
type area struct {
	span
	frozen bool
}

// stackPointers are the stack pointers of blocked threads, in ascending order.
func stackPointers(p *session.Process) ([]arch.Addr, error) {
	tids, err := p.Live.Threads()
	if err != nil {
		return nil, err
	}
	var out []arch.Addr
	for _, tid := range tids {
		if call, ok := p.Live.Call(tid); ok {
			out = append(out, arch.Addr(call.SP))
		}
	}
	slices.Sort(out)
	return out, nil
}

// managedSpans are the spans of the managed heap, in ascending order: its segments, and the memory between two
// segments if there is neither a hole nor a file. The collector has reserved that memory with the segments. Free
// regions of the heap are in no segment, but have memory; behind the last segment they lie below reserved memory.
func managedSpans(list []resident, areas []area) (out []span) {
	holes := make([]arch.Addr, 0, len(list)) // the ends of rows of anonymous mappings
	for i := range list {
		if i+1 == len(list) || list[i+1].Start != list[i].End || list[i].IsFile() != list[i+1].IsFile() {
			holes = append(holes, list[i].End)
		}
	}
	row := func(at arch.Addr) int {
		return sort.Search(len(holes), func(i int) bool { return holes[i] > at })
	}
	last := -1 // in out: the span to which the next segment may belong
	for _, a := range areas {
		s := a.span
		switch {
		case last >= 0 && !a.frozen && row(out[last].start) == row(s.start):
			out[last].end = max(out[last].end, s.end)
			continue
		case !a.frozen:
			last = len(out)
		}
		out = append(out, s)
	}
	if last >= 0 {
		out[last].end = max(out[last].end, reservedFrom(list, out[last].end))
	}
	return out
}

// leastReserved is the least size of memory that the collector has reserved and does not use, in bytes. The reserves of
// malloc are smaller (HEAP_MAX_SIZE in malloc/arena.c of glibc).
const leastReserved = 64 << 20

// reservedFrom is the end of the largest reserve in one row of anonymous mappings from an address on; 0: none.
func reservedFrom(list []resident, at arch.Addr) (end arch.Addr) {
	size := arch.Addr(leastReserved)
	first := sort.Search(len(list), func(i int) bool { return list[i].End >= at })
	for i := first; i < len(list); i++ {
		m := &list[i]
		if m.IsFile() || i > first && m.Start != list[i-1].End {
			break
		}
		if n := m.End - m.Start; m.Perm == 0 && n >= size {
			size, end = n, m.End
		}
	}
	return end
}

// partition divides the memory of mappings into parts.
func partition(list []resident, managed []span, stacks []arch.Addr) (out snapshot.Memory) {
	for i := range list {
		m := &list[i]
		out.RSS += m.bytes
		n := min(m.bytes, managedIn(&m.Mapping, managed))
		out.Managed += n
		*partOf(&out, &m.Mapping, stacks) += m.bytes - n
	}
	return out
}

// managedIn is the number of a mapping's bytes that belong to the managed heap. The kernel may have joined the heap's
// mapping with another mapping.
func managedIn(m *target.Mapping, managed []span) (n int64) {
	if m.IsFile() {
		return 0
	}
	first := sort.Search(len(managed), func(i int) bool { return managed[i].end > m.Start })
	for i := first; i < len(managed) && managed[i].start < m.End; i++ {
		n += int64(min(m.End, managed[i].end) - max(m.Start, managed[i].start))
	}
	return n
}

// doubleMapped is the file from which the runtime maps compiled code, once to write and once to run
// (src/coreclr/minipal/Unix/doublemapping.cpp).
const doubleMapped = "/memfd:doublemapper"

// partOf is the part of the memory in which a mapping counts.
func partOf(out *snapshot.Memory, m *target.Mapping, stacks []arch.Addr) *int64 {
	i, _ := slices.BinarySearch(stacks, m.Start)
	switch {
	case i < len(stacks) && stacks[i] < m.End || m.Path == "[stack]":
		return &out.Stacks
	case m.Path == doubleMapped, m.Path == "" && m.Perm&target.PermExec != 0:
		return &out.Code
	case m.Perm&target.PermShared != 0:
		return &out.Shared
	case m.IsFile():
		return &out.Files
	}
	return &out.Native
}
