package elfx

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"clrsnap/internal/arch"
)

// section is a section header (gABI, figure 4-8).
type section struct {
	name  string
	typ   uint32
	flags uint64
	addr  arch.Addr
	off   uint64
	size  uint64
	link  uint32
}

// addrRange is lo <= a < hi.
type addrRange struct{ lo, hi arch.Addr }

// Types and flags of sections (gABI, figures 4-9 and 4-11).
const (
	shtSymtab = 2
	shtNobits = 8
	shtDynsym = 11

	shfAlloc   = 2
	shfExecute = 4
)

// loadSections reads the section headers. An image may have no section headers,
// and unreadable headers count as missing: no part of a walk depends on section
// headers.
func (m *Image) loadSections() {
	m.sectionsOnce.Do(func() {
		if m.file == nil || m.shoff == 0 {
			return
		}
		var first [shdrSize]byte
		if m.readFile(first[:], m.shoff) != nil {
			return
		}
		// Numbers that do not fit the ELF header are in section 0 (gABI,
		// "ELF Header", e_shnum and e_shstrndx).
		num, strndx := uint64(m.shnum), m.shstrndx
		if num == 0 {
			num = binary.LittleEndian.Uint64(first[32:])
		}
		if strndx == 0xffff {
			strndx = binary.LittleEndian.Uint32(first[40:])
		}
		if num > maxSections {
			return
		}
		const keeps = 128 // bytes for a section
		if m.Reserve(int64(num)*keeps) != nil {
			return
		}
		b, err := wholly(m.readFile, m.shoff, num*shdrSize)
		if err != nil {
			return
		}
		m.sections = parseSections(b)
		m.nameSections(b, strndx)
		m.plt = m.ranges(func(s *section) bool { return isPLT(s.name) && s.flags&shfExecute != 0 })
		m.code = m.ranges(func(s *section) bool { return s.flags&(shfAlloc|shfExecute) == shfAlloc|shfExecute })
	})
}

// ranges are the addresses of certain sections. In a valid image the ranges do not
// overlap.
func (m *Image) ranges(of func(*section) bool) (out []addrRange) {
	for i := range m.sections {
		if s := &m.sections[i]; s.size > 0 && of(s) {
			out = append(out, addrRange{s.addr, s.addr + arch.Addr(s.size)})
		}
	}
	slices.SortFunc(out, func(a, b addrRange) int { return cmp.Compare(a.lo, b.lo) })
	return out
}

// rangeOf returns the range around an address.
func rangeOf(ranges []addrRange, a arch.Addr) (addrRange, bool) {
	i := sort.Search(len(ranges), func(i int) bool { return ranges[i].lo > a }) - 1
	if i < 0 || !a.In(ranges[i].lo, ranges[i].hi) {
		return addrRange{}, false
	}
	return ranges[i], true
}

func parseSections(b []byte) []section {
	le := binary.LittleEndian
	out := make([]section, 0, len(b)/shdrSize)
	for ; len(b) >= shdrSize; b = b[shdrSize:] {
		s := section{
			typ: le.Uint32(b[4:]), flags: le.Uint64(b[8:]), addr: arch.Addr(le.Uint64(b[16:])),
			off: le.Uint64(b[24:]), size: le.Uint64(b[32:]), link: le.Uint32(b[40:]),
		}
		if _, ok := s.addr.Add(s.size); !ok {
			s.size = 0
		}
		out = append(out, s)
	}
	return out
}

// nameSections gives the sections their names; strndx is the section with the names.
func (m *Image) nameSections(headers []byte, strndx uint32) {
	const maxNames = 1 << 20
	if int64(strndx) >= int64(len(m.sections)) {
		return
	}
	s := &m.sections[strndx]
	if s.typ == shtNobits || s.size > maxNames {
		return
	}
	names, err := wholly(m.readFile, s.off, s.size)
	if err != nil {
		return
	}
	for i := range m.sections {
		o := binary.LittleEndian.Uint32(headers[i*shdrSize:])
		if uint64(o) >= uint64(len(names)) {
			continue
		}
		const longest = 64 // of the names that any caller uses
		n := names[o:min(uint64(o)+longest, uint64(len(names)))]
		if e := bytes.IndexByte(n, 0); e >= 0 {
			m.sections[i].name = string(n[:e])
		}
	}
}

// section returns the section called name.
func (m *Image) section(name string) *section {
	m.loadSections()
	for i := range m.sections {
		if m.sections[i].name == name {
			return &m.sections[i]
		}
	}
	return nil
}

// Comment returns the strings of the section .comment, in which tools name
// themselves. An image without .comment, or in memory, has no strings.
func (m *Image) Comment() []string {
	const maxComment = 1 << 16
	s := m.section(".comment")
	if s == nil || s.typ == shtNobits || s.size > maxComment {
		return nil
	}
	b, err := wholly(m.readFile, s.off, s.size)
	if err != nil {
		return nil
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 })
}

// isPLT reports whether a section holds only stubs that jump to other images.
func isPLT(name string) bool {
	switch name {
	case ".plt", ".plt.got", ".plt.sec", ".iplt":
		return true
	}
	return false
}

// InPLT reports whether vaddr lies in a procedure linkage table. lld writes no
// call frame information for procedure linkage tables: at every instruction of
// a stub, but for lazy-binding stubs, the return address is still where the
// call left it.
func (m *Image) InPLT(vaddr arch.Addr) bool {
	m.loadSections()
	_, ok := rangeOf(m.plt, vaddr)
	return ok
}

// CodeEnd returns the end of the section, or without section headers of the
// executable segment, around vaddr: a function without a size cannot reach
// further.
func (m *Image) CodeEnd(vaddr arch.Addr) (arch.Addr, bool) {
	m.loadSections()
	if m.sections != nil {
		r, ok := rangeOf(m.code, vaddr)
		return r.hi, ok
	}
	for i := range m.Progs {
		p := &m.Progs[i]
		if p.Type == ptLoad && p.Flags&FlagExecute != 0 && vaddr.In(p.Vaddr, p.end()) {
			return p.end(), true
		}
	}
	return 0, false
}
