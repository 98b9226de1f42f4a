package session

import (
	"slices"
	"sort"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/target"
	"clrsnap/profile"
)

// Memory says where the memory is that the process has in RAM. Nothing is stopped. ErrNoHeap: of a dump, or of a
// collector that is not understood, that is not known.
func (p *Process) Memory() (profile.Memory, error) {
	if p.Live == nil || p.Runtime == nil || p.Runtime.Heap == nil {
		return profile.Memory{}, ErrNoHeap
	}
	stacks, err := p.stackPointers()
	if err != nil {
		return profile.Memory{}, err
	}
	var list []resident
	if err := p.Live.Dir().EachResident(func(m *target.Mapping, bytes int64) {
		list = append(list, resident{*m, bytes})
	}); err != nil {
		return profile.Memory{}, err
	}
	p.Engine.Begin() // after the mappings: the collector adds segments all the time, and hardly takes one away
	segments, err := p.Runtime.Heap.Segments()
	if err != nil {
		return profile.Memory{}, err
	}
	return partition(list, managedSpans(list, segments), stacks), nil
}

// resident is a mapping with how many bytes of the mapping are in RAM.
type resident struct {
	target.Mapping
	bytes int64
}

type span struct{ start, end arch.Addr }

// stackPointers are those of threads that are blocked, in ascending order.
func (p *Process) stackPointers() ([]arch.Addr, error) {
	tids, err := p.from.Threads()
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

// managedSpans is where the managed heap lies, in ascending order: its segments, and what lies between two of them
// without a hole and without a file. The collector has reserved that with them. Free regions of the heap are in no
// segment, but have memory.
func managedSpans(list []resident, segments []heap.Segment) (out []span) {
	holes := make([]arch.Addr, 0, len(list)) // where a row of anonymous mappings ends
	for i := range list {
		if i+1 == len(list) || list[i+1].Start != list[i].End || list[i].IsFile() != list[i+1].IsFile() {
			holes = append(holes, list[i].End)
		}
	}
	row := func(at arch.Addr) int {
		return sort.Search(len(holes), func(i int) bool { return holes[i] > at })
	}
	last := -1 // in out: the span that the next segment may belong to
	for i := range segments {
		s := span{segments[i].Start, segments[i].Limit()}
		switch {
		case last >= 0 && !segments[i].Frozen && row(out[last].start) == row(s.start):
			out[last].end = max(out[last].end, s.end)
			continue
		case !segments[i].Frozen:
			last = len(out)
		}
		out = append(out, s)
	}
	return out
}

// partition shares the memory of mappings out.
func partition(list []resident, managed []span, stacks []arch.Addr) (out profile.Memory) {
	for i := range list {
		m := &list[i]
		out.RSS += m.bytes
		n := min(m.bytes, managedIn(&m.Mapping, managed))
		out.Managed += n
		*partOf(&out, &m.Mapping, stacks) += m.bytes - n
	}
	return out
}

// managedIn is how many bytes of a mapping belong to the managed heap. The kernel may have joined the heap's mapping
// with another one.
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

// doubleMapped is the file that the runtime maps compiled code from, once to write and once to run
// (src/coreclr/minipal/Unix/doublemapping.cpp).
const doubleMapped = "/memfd:doublemapper"

// partOf is the part of the memory that a mapping counts in.
func partOf(out *profile.Memory, m *target.Mapping, stacks []arch.Addr) *int64 {
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
