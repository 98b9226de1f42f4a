package codemap

import "clrsnap/internal/arch"

// Shape of the range section map (codeman.h, class RangeSectionMap): a radix tree over the low 57 bits of an address.
// The lowest level stands for chunks of 128 KB; each higher level consumes 8 bits. The low bit of a pointer in the
// tree is a flag of the runtime's own.
const (
	chunkBits   = 17
	levelBits   = 8
	levels      = 5
	pointerFlag = 1

	maxFragments = 4096 // in one chunk; the runtime has a handful
)

// Flags of a RangeSection (codeman.h, RangeSection::RangeSectionFlags).
const (
	sectionCollectible = 1 << iota
	sectionCodeHeap
	sectionRangeList
	sectionInterpreter // .NET 11
)

type section struct {
	begin, end arch.Addr
	flags      uint32
	heap       arch.Addr // CodeHeapListNode
	r2rModule  arch.Addr // Module
}

// section finds the RangeSection of ip.
func (m *Map) section(ip arch.Addr) (section, bool, error) {
	if uint64(ip)>>(chunkBits+levels*levelBits) != 0 {
		return section{}, false, nil // not an address that the tree can hold
	}
	p := m.l.TopMap
	for level := levels - 1; level >= 0; level-- {
		index := uint64(ip) >> (chunkBits + level*levelBits) & (1<<levelBits - 1)
		next, err := m.mem.Pointer(p + arch.Addr(index*8))
		if err != nil {
			return section{}, false, err
		}
		if p = next &^ pointerFlag; p == 0 {
			return section{}, false, nil
		}
	}
	for n := 0; p != 0; n++ {
		if n == maxFragments {
			return section{}, false, corrupt("more than %d range section fragments for %v", maxFragments, ip)
		}
		begin, err := m.mem.Pointer(p + arch.Addr(m.l.FragBegin))
		if err != nil {
			return section{}, false, err
		}
		end, err := m.mem.Pointer(p + arch.Addr(m.l.FragEnd))
		if err != nil {
			return section{}, false, err
		}
		if ip.In(begin, end) {
			at, err := m.mem.Pointer(p + arch.Addr(m.l.FragSection))
			if err != nil {
				return section{}, false, err
			}
			return m.readSection(at, ip)
		}
		next, err := m.mem.Pointer(p + arch.Addr(m.l.FragNext))
		if err != nil {
			return section{}, false, err
		}
		p = next &^ pointerFlag
	}
	return section{}, false, nil
}

func (m *Map) readSection(at, ip arch.Addr) (s section, ok bool, err error) {
	var del arch.Addr
	for _, f := range []struct {
		off uint32
		to  *arch.Addr
	}{
		{m.l.SecBegin, &s.begin}, {m.l.SecEnd, &s.end}, {m.l.SecHeap, &s.heap},
		{m.l.SecR2R, &s.r2rModule}, {m.l.SecDelete, &del},
	} {
		if *f.to, err = m.mem.Pointer(at + arch.Addr(f.off)); err != nil {
			return s, false, err
		}
	}
	if s.flags, err = m.mem.Uint32(at + arch.Addr(m.l.SecFlags)); err != nil {
		return s, false, err
	}
	if del != 0 { // about to be deleted: the runtime's own search skips the section
		return s, false, nil
	}
	if !ip.In(s.begin, s.end) {
		return s, false, corrupt("%v lies in a fragment, but not in its section %v–%v", ip, s.begin, s.end)
	}
	return s, true, nil
}
