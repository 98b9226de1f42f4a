// Package elfx reads ELF64 images from a file, or from the memory of a target (the
// vdso; deleted files or files in another mount namespace). It reads only the
// requested parts: opening the executable of a single-file application costs two
// small reads whatever its size.
//
// Addresses are link-time addresses, as in the file: an image is parsed once and
// serves every process that maps the image. Bias returns the offset
// that a process adds.
//
// Everything in an image is hostile. Sizes are bounded before memory is allocated,
// and no input makes the package panic. "gABI" in the comments is the System V
// generic ABI, chapters 4 and 5, "LSB" the Linux Standard Base Core Specification
// 5.0, chapter 10.
package elfx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

var (
	// ErrFormat: not a usable ELF64 image.
	ErrFormat = errors.New("not a usable ELF64 image")
	// ErrNotFound: the image does not have the requested part.
	ErrNotFound = errors.New("not in the image")
	// ErrUnbacked: the image's bytes do not cover the address; the bytes at the
	// address exist, if at all, only in a process's memory.
	ErrUnbacked = errors.New("not backed by the image")
)

// Sizes of the structures (gABI, figures 4-3, 4-8, 4-16, 5-1, 5-9).
const (
	ehdrSize = 64
	shdrSize = 64
	phdrSize = 56
	symSize  = 24
	dynSize  = 16
)

// Bounds on an image's demands for memory. The largest real images (a browser
// with its symbols) stay well below.
const (
	maxProgs    = 1 << 12
	maxSections = 1 << 16
	maxDynamic  = 1 << 12 // entries
	maxSymbols  = 1 << 24
	maxNotes    = 1 << 16 // bytes
	maxName     = 1 << 12 // bytes of a symbol's name
)

// Types and flags of program headers (gABI, figures 5-2 and 5-3; LSB 10.7).
const (
	ptLoad       = 1
	ptDynamic    = 2
	ptNote       = 4
	ptGNUEHFrame = 0x6474e550

	// FlagExecute marks a segment mapped executable.
	FlagExecute = 1
	// FlagWrite marks a segment mapped writable.
	FlagWrite = 2
)

// Prog is a program header: a piece of the image and where the piece is mapped.
type Prog struct {
	Type   uint32
	Flags  uint32
	Offset uint64 // in the file
	Vaddr  arch.Addr
	Filesz uint64 // bytes in the file
	Memsz  uint64 // bytes in memory; bytes beyond Filesz are zero when mapped
	Align  uint64
}

// end is the first address past the segment; parse has checked that the address exists.
func (p *Prog) end() arch.Addr { return p.Vaddr + arch.Addr(p.Memsz) }

// Image is an ELF64 image. Its methods may be called concurrently if its file
// or memory may be read concurrently.
type Image struct {
	Machine arch.Machine // zero for an architecture unknown to arch
	Entry   arch.Addr
	Progs   []Prog

	file io.ReaderAt
	mem  target.Memory // instead of file
	bias arch.Addr     // of mem

	budget *Budget
	keptMu sync.Mutex
	kept   int64 // bytes of the budget

	shoff           uint64
	shnum, shstrndx uint32

	sectionsOnce sync.Once
	sections     []section
	plt, code    []addrRange // sections, by address

	dynOnce sync.Once
	dyn     dynamic
	dynErr  error

	tablesOnce sync.Once
	tables     []symtab
}

// New returns the image in file, with a budget of its own, without a bound on reads.
func New(file io.ReaderAt) (*Image, error) { return (&Budget{unread: math.MaxInt64}).Image(file) }

// NewMemory returns the image whose ELF header is mapped at base, with a budget like New's.
func NewMemory(mem target.Memory, base arch.Addr) (*Image, error) {
	return (&Budget{unread: math.MaxInt64}).Mapped(mem, base)
}

// Image returns the image in file. The image keeps file, reads file on demand,
// and never closes file.
func (b *Budget) Image(file io.ReaderAt) (*Image, error) {
	m := &Image{file: file, budget: b}
	if err := m.parse(func(p []byte, off uint64) error { return m.readFile(p, off) }); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Mapped returns the image whose ELF header is mapped at base. Section headers
// are not mapped, so a mapped image has no .symtab and InPLT is always false.
func (b *Budget) Mapped(mem target.Memory, base arch.Addr) (*Image, error) {
	m := &Image{mem: mem, budget: b}
	if err := m.parseMapped(base); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Image) parseMapped(base arch.Addr) error {
	err := m.parse(func(p []byte, off uint64) error {
		a, ok := base.Add(off)
		if !ok {
			return fmt.Errorf("%w: header at the end of memory", ErrFormat)
		}
		if err := m.budget.read(int64(len(p))); err != nil {
			return err
		}
		return m.mem.ReadMemory(p, a)
	})
	if err != nil {
		return err
	}
	m.shoff, m.shnum = 0, 0
	for i := range m.Progs {
		if p := &m.Progs[i]; p.Type == ptLoad && p.Offset == 0 {
			m.bias = base - p.Vaddr
			return nil
		}
	}
	return fmt.Errorf("%w: no segment maps the ELF header", ErrFormat)
}

// Reserve takes n bytes of the image's budget, for data derived from the image and kept
// with the image. The error is ErrBudget if fewer bytes are left.
func (m *Image) Reserve(n int64) error { return m.keep(n, forImages) }

func (m *Image) keep(n, reserve int64) error {
	err := m.budget.keep(n, reserve)
	if err == nil {
		m.keptMu.Lock()
		m.kept += n
		m.keptMu.Unlock()
	}
	return err
}

// Release gives back n bytes taken by Reserve.
func (m *Image) Release(n int64) {
	m.keptMu.Lock()
	defer m.keptMu.Unlock()
	m.budget.give(n)
	m.kept -= n
}

// Close gives back the budget's bytes that the image has taken. It does not close the file.
func (m *Image) Close() {
	m.keptMu.Lock()
	defer m.keptMu.Unlock()
	m.budget.give(m.kept)
	m.kept = 0
}

// parse reads the ELF header and the program headers (gABI, figures 4-3, 5-1).
func (m *Image) parse(read func(p []byte, off uint64) error) error {
	var h [ehdrSize]byte
	if err := read(h[:], 0); err != nil {
		return err
	}
	const class64, littleEndian = 2, 1
	if string(h[:4]) != "\x7fELF" || h[4] != class64 || h[5] != littleEndian {
		return fmt.Errorf("%w: header % x", ErrFormat, h[:6])
	}
	le := binary.LittleEndian
	switch le.Uint16(h[18:]) { // e_machine
	case 62:
		m.Machine = arch.MachineAMD64
	case 183:
		m.Machine = arch.MachineARM64
	}
	m.Entry = arch.Addr(le.Uint64(h[24:]))
	phoff, phentsize, phnum := le.Uint64(h[32:]), le.Uint16(h[54:]), le.Uint16(h[56:])
	m.shoff, m.shnum, m.shstrndx = le.Uint64(h[40:]), uint32(le.Uint16(h[60:])), uint32(le.Uint16(h[62:]))
	if le.Uint16(h[58:]) != shdrSize {
		m.shoff = 0
	}
	if phnum == 0 || phnum > maxProgs || phentsize != phdrSize {
		return fmt.Errorf("%w: %d program headers of %d bytes", ErrFormat, phnum, phentsize)
	}
	if err := m.keep(imageCosts+int64(phnum)*phdrSize, 0); err != nil {
		return err
	}
	b, err := wholly(read, phoff, uint64(phnum)*phdrSize)
	if err != nil {
		return err
	}
	return m.parseProgs(b)
}

func (m *Image) parseProgs(b []byte) error {
	le := binary.LittleEndian
	m.Progs = make([]Prog, 0, len(b)/phdrSize)
	for ; len(b) >= phdrSize; b = b[phdrSize:] {
		p := Prog{
			Type: le.Uint32(b), Flags: le.Uint32(b[4:]), Offset: le.Uint64(b[8:]), Vaddr: arch.Addr(le.Uint64(b[16:])),
			Filesz: le.Uint64(b[32:]), Memsz: le.Uint64(b[40:]), Align: le.Uint64(b[48:]),
		}
		_, fits := p.Vaddr.Add(p.Memsz)
		if !fits || p.Offset > math.MaxInt64 || p.Filesz > math.MaxInt64-p.Offset {
			return fmt.Errorf("%w: a segment exceeds the address space", ErrFormat)
		}
		if p.Type == ptLoad && p.Filesz > p.Memsz {
			return fmt.Errorf("%w: a segment is larger in the file than in memory", ErrFormat)
		}
		m.Progs = append(m.Progs, p)
	}
	return nil
}

// Bias returns the offset that a process adds to the image's addresses, given
// one of the process's executable mappings of the image: the start of the
// mapping and its offset in the file. Other mappings do not serve:
// a single-file application maps its own file dozens of times, as data, at
// offsets of its own choice.
func (m *Image) Bias(mapStart arch.Addr, mapOffset uint64) (arch.Addr, error) {
	// The kernel maps from the page with the segment's first byte; pages have 4
	// KB, or up to 64 KB on arm64. The smallest page size that fits is tried
	// first, because segments can share a large page of the file.
	for page := uint64(0x1000); page <= 0x10000; page *= 4 {
		for i := range m.Progs {
			p := &m.Progs[i]
			if p.Type != ptLoad || p.Flags&FlagExecute == 0 {
				continue
			}
			if mapOffset < p.Offset&^(page-1) || mapOffset >= p.Offset+p.Filesz {
				continue
			}
			bias := mapStart - p.Vaddr - arch.Addr(mapOffset) + arch.Addr(p.Offset)
			if bias&0xfff == 0 {
				return bias, nil
			}
		}
	}
	return 0, fmt.Errorf("executable segment for offset 0x%x: %w", mapOffset, ErrNotFound)
}

// BuildID returns the image's build id, the linker's hash of its contents
// (an NT_GNU_BUILD_ID note).
func (m *Image) BuildID() ([]byte, error) {
	for i := range m.Progs {
		p := &m.Progs[i]
		if p.Type != ptNote || p.Filesz > maxNotes {
			continue
		}
		b, err := m.bytes(p.Vaddr, p.Filesz)
		if err != nil {
			continue
		}
		if id := buildID(b, p.Align); id != nil {
			return id, nil
		}
	}
	if id := m.sectionBuildID(); id != nil {
		return id, nil
	}
	return nil, fmt.Errorf("build id: %w", ErrNotFound)
}

// buildID looks through a sequence of notes: three words (length of the name,
// length of the description, type), name, description, each padded to 4 bytes,
// or to 8 in segments with an alignment of 8 (gABI, "Note Section").
func buildID(b []byte, align uint64) []byte {
	const ntGNUBuildID = 3
	if align != 8 {
		align = 4
	}
	pad := func(n uint32) uint64 { return (uint64(n) + align - 1) &^ (align - 1) }
	for len(b) >= 12 {
		namesz, descsz := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		typ := binary.LittleEndian.Uint32(b[8:])
		descOff := (12 + uint64(namesz) + align - 1) &^ (align - 1)
		if descOff+uint64(descsz) > uint64(len(b)) {
			return nil
		}
		if typ == ntGNUBuildID && string(b[12:12+namesz]) == "GNU\x00" && descsz > 0 {
			return b[descOff : descOff+uint64(descsz)]
		}
		b = b[min(descOff+pad(descsz), uint64(len(b))):]
	}
	return nil
}
