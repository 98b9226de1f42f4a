package core

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/target"
)

// An image is a file that the process had mapped.
type image struct {
	c        *Core
	path     string // as the process saw the path
	deleted  bool
	main     bool       // the main program
	mappings []*mapping // by address

	mu      sync.Mutex
	loaded  bool
	err     error // why the file cannot be used
	file    *os.File
	size    uint64
	changed time.Time // the file's mtime
	vouched bool      // the user has named the file
	trusted bool      // used although no byte could be compared
	used    atomic.Bool
	doubted atomic.Bool // Proved has returned false
	refused error       // how the runtime's memory contradicts the file; nil: no known contradiction

	elf *elfx.Image
	pe  *peImage
	fit bool // size and layout fit the mappings
}

// maxCompared bounds the compared pages of a file without build id.
const maxCompared = 64

// load opens the file, once, and checks that the file is the mapped file.
func (im *image) load() error {
	im.mu.Lock()
	defer im.mu.Unlock()
	if !im.loaded {
		im.loaded = true
		if im.err = im.open(); im.err == nil {
			im.lay()
			if im.err = im.verify(); im.err != nil {
				im.file.Close()
			}
		}
		if exe := im.c.opts.Exe; im.err != nil && im.main && exe != "" {
			im.err = fmt.Errorf("is to be read from %s, which %w", exe, im.err)
		}
	}
	return im.err
}

// contradicted says why the file is another file, although it agrees with the dump; nil: not
// known to be another file.
func (im *image) contradicted() error {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.refused
}

// isTrusted reports whether the file is used although nothing could be compared.
func (im *image) isTrusted() bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.loaded && im.err == nil && im.trusted
}

func (im *image) close() {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.loaded, im.err = true, os.ErrClosed
	if im.file != nil {
		im.file.Close()
	}
}

func (im *image) open() (err error) {
	if im.file, im.vouched, err = im.c.openFile(im); err != nil {
		return err
	}
	st, err := im.file.Stat()
	if err != nil {
		im.file.Close()
		return err
	}
	im.size, im.changed = uint64(st.Size()), st.ModTime()
	if im.elf, err = elfx.New(im.file); err != nil {
		im.pe = readPE(im.file)
	}
	return nil
}

// lay finds the parts of the mappings that the file can supply.
func (im *image) lay() {
	im.fit = true
	for _, run := range im.runs() {
		for _, m := range run {
			clean, known := im.place(run, m)
			if !known && im.c.unwritten(m) {
				clean = []span{{m.Start, m.End}}
			}
			if ceil(im.size) < m.Offset+m.Size() {
				known, clean = false, nil
			}
			m.clean = clean
			im.fit = im.fit && known
		}
	}
}

// place returns the parts of a mapping that are unchanged by the layout of the image of run, and
// whether the mapping is a part of that image at all.
func (im *image) place(run []*mapping, m *mapping) (clean []span, known bool) {
	switch {
	case im.elf != nil:
		return im.placeELF(run[0], m)
	case im.isWhole(m) && m.Perm&target.PermWrite == 0:
		return []span{{m.Start, m.End}}, true
	case im.pe != nil && run[0].Offset == 0:
		return im.pe.place(run[0].Start, m)
	}
	return nil, false
}

// runs splits the mappings of a file into one run for each time that the file was loaded or
// mapped whole. Within a run the offsets ascend; the headers and the first section of a PE image
// can come from the same page.
func (im *image) runs() (out [][]*mapping) {
	first := 0
	for i := 1; i <= len(im.mappings); i++ {
		if i == len(im.mappings) || im.mappings[i].Offset < im.mappings[i-1].Offset || im.isWhole(im.mappings[i]) ||
			im.isWhole(im.mappings[i-1]) {
			out = append(out, im.mappings[first:i])
			first = i
		}
	}
	return out
}

// loads are the runs of loaded images, which begin at the beginning of the file; only the first
// 64 of them.
func (im *image) loads() [][]*mapping {
	const most = 64
	out := slices.DeleteFunc(im.runs(), func(run []*mapping) bool { return run[0].Offset != 0 })
	return out[:min(len(out), most)]
}

// isWhole reports whether m maps the whole file in one piece.
func (im *image) isWhole(m *mapping) bool { return m.Offset == 0 && m.Size() == ceil(im.size) }

const (
	elfLoad  = 1
	elfWrite = 2
)

// bias returns the amount to add to an ELF image's addresses. first maps the beginning of the
// image.
func bias(e *elfx.Image, first *mapping) (arch.Addr, bool) {
	for i := range e.Progs {
		if p := &e.Progs[i]; p.Type == elfLoad && floor(p.Offset) == 0 {
			return first.Start - floor(p.Vaddr), first.Offset == 0
		}
	}
	return 0, false
}

// placeELF goes by the image's segments. The part that the dynamic linker protects after
// relocation (PT_GNU_RELRO) belongs to a writable segment.
func (im *image) placeELF(first, m *mapping) (clean []span, known bool) {
	b, ok := bias(im.elf, first)
	if !ok {
		return nil, false
	}
	for i := range im.elf.Progs {
		p := &im.elf.Progs[i]
		if p.Type != elfLoad {
			continue
		}
		seg := span{floor(b + p.Vaddr), ceil(b + p.Vaddr + arch.Addr(p.Filesz))}
		if m.Offset+uint64(seg.start-m.Start) != floor(p.Offset) {
			continue // another piece of the file, mapped by chance at the image's place
		}
		seg = span{max(seg.start, m.Start), min(seg.end, m.End)}
		if seg.start >= seg.end {
			continue
		}
		known = true
		if p.Flags&elfWrite == 0 {
			clean = append(clean, seg)
		}
	}
	return clean, known
}

// verify makes sure that the file is the process's mapped file.
func (im *image) verify() error {
	if im.elf != nil {
		if dump, ok := im.dumpedBuildID(); ok {
			id, err := im.elf.BuildID()
			switch {
			case err != nil:
				return fmt.Errorf("is another file: without a build id, and the dump has build id %s",
					hex.EncodeToString(dump))
			case !bytes.Equal(id, dump):
				return fmt.Errorf("is another file: with build id %s, and the dump has build id %s",
					hex.EncodeToString(id), hex.EncodeToString(dump))
			}
			return nil
		}
	}
	compared, err := im.compare()
	if err != nil || compared > 0 {
		return err
	}
	if im.pe != nil {
		if words, alike := im.relocated(); words >= enoughWords {
			if alike < words/2 {
				return errDiffers
			}
			return nil
		}
	}
	return im.trust()
}

// enoughWords is how many relocated words are enough to distinguish builds.
const enoughWords = 16

// relocated compares the words that loading has relocated and that were not written to since,
// over all loads of the image by sections.
func (im *image) relocated() (words, alike int) {
	for _, run := range im.loads() {
		if len(run) == 1 {
			continue // mapped whole
		}
		w, a := im.pe.relocated(dumped{im.c}, run[0].Start, run[len(run)-1].End)
		words, alike = words+w, alike+a
	}
	return words, alike
}

// dumpedBuildID is the image's build id in the dump.
func (im *image) dumpedBuildID() ([]byte, bool) {
	for _, run := range im.loads() {
		if e, err := elfx.NewMemory(dumped{im.c}, run[0].Start); err == nil {
			if id, err := e.BuildID(); err == nil {
				return id, true
			}
		}
	}
	return nil, false
}

var errDiffers = errors.New("is another file: the contents differ from the dump")

// compare compares the dump's memory of the clean parts with the file.
func (im *image) compare() (pages int, err error) {
	var dump, file [pageSize]byte
	for _, m := range im.mappings {
		for _, s := range m.clean {
			for i := im.c.segmentFrom(s.start); i < len(im.c.segments) && im.c.segments[i].start < s.end; i++ {
				seg := &im.c.segments[i]
				end := min(s.end, seg.start+arch.Addr(seg.has))
				for at := max(s.start, seg.start); at < end && pages < maxCompared; pages++ {
					n := int(min(uint64(end-at), pageSize))
					if err := (dumped{im.c}).ReadMemory(dump[:n], at); err != nil {
						return pages, err
					}
					if err := im.readAt(file[:n], m.Offset+uint64(at-m.Start)); err != nil {
						return pages, err
					}
					if !bytes.Equal(dump[:n], file[:n]) {
						return pages, errDiffers
					}
					at += arch.Addr(n)
				}
			}
		}
	}
	return pages, nil
}

// trust decides about a file without any page in the dump.
func (im *image) trust() error {
	switch {
	case !im.fit:
		return errors.New("is another file: the size or layout does not fit the mappings")
	case im.vouched:
	case im.deleted:
		return errors.New("had been removed or replaced before the dump was made")
	case im.changed.After(im.c.written):
		return errors.New("may be another file: the file was written to after the dump was made, " +
			"and the dump has no page to compare (if the file is right, --sysroot / says so)")
	}
	im.trusted = true
	return nil
}

// readAt fills p from offset off of the file; the last page ends in zeros, as in memory.
func (im *image) readAt(p []byte, off uint64) error {
	if off > ceil(im.size) || uint64(len(p)) > ceil(im.size)-off {
		return io.ErrUnexpectedEOF
	}
	in := p[:min(uint64(len(p)), im.size-min(off, im.size))]
	if n, err := im.file.ReadAt(in, int64(off)); n < len(in) {
		return err
	}
	clear(p[len(in):])
	return nil
}

// permissions completes the mappings' permissions where the dump lacks them.
func (im *image) permissions() {
	if !slices.ContainsFunc(im.mappings, func(m *mapping) bool { return !m.known }) {
		return
	}
	for _, run := range im.runs() {
		e := im.program(run[0])
		for _, m := range run {
			switch {
			case m.known:
			case e != nil:
				m.Perm |= permsELF(e, run[0], m)
			case im.pe != nil:
				m.Perm |= im.pe.permissions(run[0].Start, m)
			}
		}
	}
}

// program is the ELF image that was mapped from first on: from the file, or from the dump if the
// dump has the headers.
func (im *image) program(first *mapping) *elfx.Image {
	if im.load() == nil {
		return im.elf
	}
	if e, err := elfx.NewMemory(dumped{im.c}, first.Start); err == nil && first.Offset == 0 {
		return e
	}
	return nil
}

func permsELF(e *elfx.Image, first, m *mapping) target.Perm {
	b, ok := bias(e, first)
	if !ok {
		return 0
	}
	for i := range e.Progs {
		p := &e.Progs[i]
		if p.Type == elfLoad && m.Start.In(floor(b+p.Vaddr), ceil(b+p.Vaddr+arch.Addr(p.Memsz))) {
			return permOf(p.Flags)
		}
	}
	return 0
}

// Proved reports whether the bytes that we read of a PE image at an address are the process's.
// Proof is either of two: the image's headers, with a number of the build, are in both the dump
// and the file; or the relocated words agree with the file. A single-file program is an ELF image
// with a build id, but the build id is the host's, and does not cover the assemblies inside.
func (c *Core) Proved(at arch.Addr) bool {
	m := c.mapping(at)
	if m == nil || m.image == nil || m.image.load() != nil {
		return true // no file is used
	}
	var dump, file [pageSize]byte
	off := m.Offset + uint64(at-m.Start)
	n := min(uint64(m.End-at), pageSize)
	if (dumped{c}).ReadMemory(dump[:n], at) == nil {
		return m.image.readAt(file[:n], off) == nil && bytes.Equal(dump[:n], file[:n])
	}
	const most = 1 << 30 // of an image
	if pe := readPE(io.NewSectionReader(m.image.file, int64(off), most)); pe != nil {
		words, alike := pe.relocated(dumped{c}, at, at+arch.Addr(pe.size()))
		if words >= enoughWords && alike >= words/2 {
			return true
		}
	}
	m.image.doubted.Store(true)
	return false
}

// Refuse records that the file of an image is known to be another file than the process's.
func (c *Core) Refuse(at arch.Addr, why error) {
	if m := c.mapping(at); m != nil && m.image != nil {
		m.image.mu.Lock()
		defer m.image.mu.Unlock()
		m.image.refused = why
	}
}

// readFile fills the beginning of p from the file that was mapped at addr.
func (c *Core) readFile(p []byte, addr arch.Addr) (int, error) {
	m := c.mapping(addr)
	if m == nil {
		return 0, errLeftOut
	}
	if m.forbidden() {
		return 0, errForbidden
	}
	n, err := c.readClean(m, p, addr)
	if err != nil {
		c.misses.add(addr, m.image)
	}
	return n, err
}

func (c *Core) readClean(m *mapping, p []byte, addr arch.Addr) (int, error) {
	if m.image == nil {
		return 0, errLeftOut
	}
	if err := m.image.load(); err != nil {
		return 0, fmt.Errorf("the dump has left the memory out, and %s %w", m.Path, err)
	}
	for _, s := range m.clean {
		if !addr.In(s.start, s.end) {
			continue
		}
		end := s.end
		if i := c.segmentFrom(addr); i < len(c.segments) {
			if seg := &c.segments[i]; seg.start > addr {
				end = min(end, seg.start)
			} else {
				end = min(end, seg.end) // the left-out part of a segment
			}
		}
		n := int(min(uint64(len(p)), uint64(end-addr)))
		m.image.used.Store(true)
		return n, m.image.readAt(p[:n], m.Offset+uint64(addr-m.Start))
	}
	return 0, errLeftOut
}

// OpenMapping opens the very file behind a mapping, or fails.
func (c *Core) OpenMapping(m *target.Mapping) (target.File, error) {
	own := c.mapping(m.Start)
	if own == nil || own.image == nil {
		return nil, fmt.Errorf("mapping at %v: no file is mapped there", m.Start)
	}
	if err := own.image.load(); err != nil {
		c.misses.add(m.Start, own.image)
		return nil, fmt.Errorf("%s %w", m.Path, err)
	}
	own.image.used.Store(true)
	return borrowed{own.image.file}, nil
}

// borrowed is an image's file, which stays open as long as the dump.
type borrowed struct{ io.ReaderAt }

func (borrowed) Close() error { return nil }
