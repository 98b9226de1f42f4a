package core

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// peImage has the fields of a PE file that decide how the runtime maps the file by sections
// (PE/COFF specification, "Section Table"; dotnet/runtime, src/coreclr/pal/src/map/map.cpp,
// MAPMapPEFile).
type peImage struct {
	file     io.ReaderAt
	base     uint64 // the preferred address, from linking
	headers  uint64 // bytes
	relocs   uint64 // rva of the base relocations; 0: none
	relocLen uint64
	sections []peSection

	relocsOnce  sync.Once
	isRelocated map[uint32]bool // by the rva of the word
}

type peSection struct {
	rva, off, size uint64
	flags          uint32
}

const (
	peExecute = 0x20000000 // IMAGE_SCN_MEM_EXECUTE
	peWrite   = 0x80000000 // IMAGE_SCN_MEM_WRITE
)

// readPE returns nil for a file that is no PE image.
func readPE(f io.ReaderAt) *peImage {
	const (
		offNewHeader = 0x3c
		coffSize     = 24 // with the signature
		offBase      = coffSize + 24
		offHeaders   = coffSize + 60
		offRelocs    = coffSize + 112 + 5*8 // the sixth data directory
		sectionSize  = 40
		maxSections  = 96
	)
	le := binary.LittleEndian
	var dos [64]byte
	if _, err := f.ReadAt(dos[:], 0); err != nil || dos[0] != 'M' || dos[1] != 'Z' {
		return nil
	}
	at := int64(le.Uint32(dos[offNewHeader:]))
	var h [offRelocs + 8]byte
	if _, err := f.ReadAt(h[:], at); err != nil || string(h[:4]) != "PE\x00\x00" {
		return nil
	}
	n, optional := int(le.Uint16(h[6:])), int64(le.Uint16(h[20:]))
	if n > maxSections {
		return nil
	}
	table := make([]byte, n*sectionSize)
	if _, err := f.ReadAt(table, at+coffSize+optional); err != nil {
		return nil
	}
	p := &peImage{file: f, headers: uint64(le.Uint32(h[offHeaders:]))}
	const magic64 = 0x20b
	if le.Uint16(h[coffSize:]) == magic64 {
		p.base = le.Uint64(h[offBase:])
		p.relocs, p.relocLen = uint64(le.Uint32(h[offRelocs:])), uint64(le.Uint32(h[offRelocs+4:]))
	}
	for ; len(table) > 0; table = table[sectionSize:] {
		p.sections = append(p.sections, peSection{
			rva: uint64(le.Uint32(table[12:])), off: uint64(le.Uint32(table[20:])), size: uint64(le.Uint32(table[16:])),
			flags: le.Uint32(table[36:]),
		})
	}
	return p
}

// place returns the part of a mapping that the program cannot have changed, and whether the
// mapping belongs to the image, which is mapped by sections from base on.
func (p *peImage) place(base arch.Addr, m *mapping) (clean []span, known bool) {
	if m.Start == base && m.Size() == ceil(p.headers) {
		return []span{{m.Start, m.End}}, true
	}
	s := p.section(base, m)
	if s == nil {
		return nil, false
	}
	if s.flags&peWrite == 0 {
		clean = []span{{m.Start, m.End}}
	}
	return clean, true
}

// section returns the section that begins in the first page of a mapping.
func (p *peImage) section(base arch.Addr, m *mapping) *peSection {
	for i := range p.sections {
		if s := &p.sections[i]; floor(base+arch.Addr(s.rva)) == m.Start && floor(s.off) == m.Offset {
			return s
		}
	}
	return nil
}

// size is the image's size in memory, in bytes.
func (p *peImage) size() (n uint64) {
	for _, s := range p.sections {
		n = max(n, ceil(s.rva+s.size))
	}
	return n
}

func (p *peImage) permissions(base arch.Addr, m *mapping) (perm target.Perm) {
	if s := p.section(base, m); s != nil {
		if s.flags&peExecute != 0 {
			perm |= target.PermExec
		}
		if s.flags&peWrite != 0 {
			perm |= target.PermWrite
		}
	}
	return perm
}

// maxRelocPages bounds the pages with compared relocated words.
const maxRelocPages = 64

// relocated compares the words that a loader relocates, which are in writable memory, with the
// dump's memory of an image mapped by sections from base to end. words counts the words that lead
// into the image, and alike the equal words among them. Most words are cells for calls; cells
// that have been used lead elsewhere and do not count. In another build, with moved code, hardly
// any word is alike.
func (p *peImage) relocated(dump target.Memory, base, end arch.Addr) (words, alike int) {
	n := 0
	p.eachRelocs(func(rva uint64, offsets []int) bool {
		if n++; n > maxRelocPages {
			return false
		}
		was := p.read(rva, pageSize)
		is := make([]byte, len(was))
		if len(was) == 0 || dump.ReadMemory(is, base+arch.Addr(rva)) != nil {
			return true
		}
		for _, at := range offsets {
			if at+8 > len(was) {
				continue
			}
			word := binary.LittleEndian.Uint64(is[at:])
			if !arch.Addr(word).In(base, end) {
				continue
			}
			words++
			if word == binary.LittleEndian.Uint64(was[at:])+uint64(base)-p.base {
				alike++
			}
		}
		return true
	})
	return words, alike
}

// eachRelocs calls use for each page with words that a loader relocates, with the words' offsets
// in the page, until use returns false.
func (p *peImage) eachRelocs(use func(rva uint64, offsets []int) (more bool)) {
	blocks := p.read(p.relocs, p.relocLen)
	le := binary.LittleEndian
	for len(blocks) >= 8 {
		rva, size := uint64(le.Uint32(blocks)), uint64(le.Uint32(blocks[4:]))
		if size < 8 || size > uint64(len(blocks)) {
			return
		}
		var offsets []int
		for entries := blocks[8:size]; len(entries) >= 2; entries = entries[2:] {
			const dir64 = 10 // IMAGE_REL_BASED_DIR64
			if e := le.Uint16(entries); e>>12 == dir64 {
				offsets = append(offsets, int(e&(pageSize-1)))
			}
		}
		if blocks = blocks[size:]; !use(rva, offsets) {
			return
		}
	}
}

// Relocated returns the word at an address as relocated by the loader: the address of something
// else in the image. Relocated computes the word from the PE image's file. It is for words that
// programs could change but do not change, in memory that the dump has left out. false: there is
// no such word, or no such file.
func (c *Core) Relocated(addr arch.Addr) (arch.Addr, bool) {
	m := c.mapping(addr)
	if m == nil || m.image == nil || m.image.load() != nil || m.image.pe == nil {
		return 0, false
	}
	for _, run := range m.image.runs() {
		if base := run[0].Start; run[0].Offset == 0 && slices.Contains(run, m) {
			m.image.used.Store(true)
			return m.image.pe.word(addr-base, base, run[len(run)-1].End)
		}
	}
	return 0, false
}

// word is Relocated for an image mapped by sections from base to end.
func (p *peImage) word(rva, base, end arch.Addr) (arch.Addr, bool) {
	p.relocsOnce.Do(func() {
		p.isRelocated = map[uint32]bool{}
		p.eachRelocs(func(page uint64, offsets []int) bool {
			for _, at := range offsets {
				p.isRelocated[uint32(page)+uint32(at)] = true
			}
			return true
		})
	})
	b := p.read(uint64(rva), 8)
	if len(b) < 8 || !p.isRelocated[uint32(rva)] {
		return 0, false
	}
	word := arch.Addr(binary.LittleEndian.Uint64(b) + uint64(base) - p.base)
	return word, word.In(base, end)
}

// read returns up to size bytes of the file at a relative address, up to the end of the section.
// The first page of a section belongs to the section as a whole.
func (p *peImage) read(rva, size uint64) []byte {
	const most = 4 << 20
	for _, s := range p.sections {
		if rva >= floor(s.rva) && rva < s.rva+s.size && s.off+rva >= s.rva {
			b := make([]byte, min(size, s.rva+s.size-rva, most))
			if _, err := p.file.ReadAt(b, int64(s.off+rva-s.rva)); err != nil {
				return nil
			}
			return b
		}
	}
	return nil
}
