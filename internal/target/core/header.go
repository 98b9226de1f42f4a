package core

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Sizes and numbers of the ELF format (gABI, chapters 4 and 5).
const (
	ehdrSize = 64
	phdrSize = 56
	shdrSize = 64

	typeCore = 4      // ET_CORE
	moreProg = 0xffff // PN_XNUM: the number of program headers is in section header 0

	segLoad = 1 // PT_LOAD
	segNote = 4 // PT_NOTE

	flagExec, flagWrite, flagRead = 1, 2, 4
)

// maxSegments bounds the program headers: createdump writes a header for every run of pages, and
// a process can have a few million mappings at most.
const maxSegments = 1 << 22

var (
	errWrap    = errors.New("the range leaves the address space")
	errLeftOut = errors.New("the dump has left the memory out")
	errCut     = errors.New("the dump is cut off before the memory")

	errForbidden = errors.New("the process itself could not read the memory")
)

// header has the used fields of the ELF header.
type header struct {
	phoff uint64
	phnum uint64
}

// A segment is a piece of memory: a PT_LOAD.
type segment struct {
	start, end arch.Addr
	off        uint64 // of the first byte in the dump
	dumped     uint64 // bytes announced in the dump
	has        uint64 // bytes present: fewer where the dump is cut off
	perm       target.Perm
}

// packed are the magic numbers of compressed files, and the commands for unpacking.
var packed = []struct{ magic, with string }{
	{"\x1f\x8b", "gunzip -k FILE.gz"},
	{"\x28\xb5\x2f\xfd", "zstd -d FILE.zst, or coredumpctl dump PID --output=FILE"},
	{"\x04\x22\x4d\x18", "lz4 -d FILE.lz4 FILE, or coredumpctl dump PID --output=FILE"},
	{"\xfd7zXZ\x00", "xz -dk FILE.xz"},
	{"BZh", "bunzip2 -k FILE.bz2"},
}

func (c *Core) readHeader() (header, error) {
	var b [ehdrSize]byte
	n, err := c.file.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return header{}, err
	}
	if err := checkIdent(b[:n]); err != nil {
		return header{}, err
	}
	le := binary.LittleEndian
	machine := le.Uint16(b[18:])
	if c.layout = layouts[machine]; c.layout == nil {
		return header{}, fmt.Errorf("the dump is of %s, and only dumps of x86-64 can be read", machineName(machine))
	}
	if t := le.Uint16(b[16:]); t != typeCore {
		return header{}, errors.New("the dump is an ELF file but not a core dump: a program or a library, perhaps")
	}
	h := header{phoff: le.Uint64(b[32:]), phnum: uint64(le.Uint16(b[56:]))}
	if h.phnum == moreProg {
		if h.phnum, err = c.readProgramCount(le.Uint64(b[40:])); err != nil {
			return header{}, err
		}
	}
	if size := le.Uint16(b[54:]); size != phdrSize {
		return header{}, fmt.Errorf("the dump is damaged: the program headers have %d bytes instead of %d", size,
			phdrSize)
	}
	return h, nil
}

func checkIdent(b []byte) error {
	for _, p := range packed {
		if bytes.HasPrefix(b, []byte(p.magic)) {
			return fmt.Errorf("the dump is compressed: unpack it first, with %s", p.with)
		}
	}
	switch {
	case len(b) == 0:
		return errors.New("the dump is empty: the disk may have been full, or the size of dumps limited (ulimit -c)")
	case !bytes.HasPrefix(b, []byte("\x7fELF")):
		return errors.New("the dump is not an ELF file: give a file of the kernel, gcore or createdump")
	case len(b) < ehdrSize:
		return fmt.Errorf("the dump is cut off after %d bytes, within the header", len(b))
	case b[4] != 2:
		return errors.New("the dump is of a 32-bit process, and only dumps of x86-64 can be read")
	case b[5] != 1:
		return errors.New("the dump is of a big-endian machine, and only dumps of x86-64 can be read")
	}
	return nil
}

// readProgramCount reads the number of program headers where 16 bits are not enough: sh_info of
// section header 0.
func (c *Core) readProgramCount(shoff uint64) (uint64, error) {
	var b [shdrSize]byte
	if !c.readAll(b[:], shoff) {
		return 0, errors.New("the dump is damaged: the number of program headers is not in the file")
	}
	return uint64(binary.LittleEndian.Uint32(b[44:])), nil
}

// readAll fills b from offset off of the dump, or reports false.
func (c *Core) readAll(b []byte, off uint64) bool {
	if off > c.size || uint64(len(b)) > c.size-off {
		return false
	}
	_, err := c.file.ReadAt(b, int64(off))
	return err == nil
}

func (c *Core) readProgramHeaders(h header) error {
	if h.phoff > c.size || h.phnum*phdrSize > c.size-h.phoff {
		return fmt.Errorf("the dump is cut off: %d program headers do not fit into %d bytes", h.phnum, c.size)
	}
	if h.phnum > maxSegments {
		return fmt.Errorf("the dump has %d program headers, and more than %d are not read", h.phnum, maxSegments)
	}
	r := io.NewSectionReader(c.file, int64(h.phoff), int64(h.phnum*phdrSize))
	const batch = 1024
	buf := make([]byte, min(batch, h.phnum)*phdrSize)
	for left := h.phnum; left > 0; {
		b := buf[:min(batch, left)*phdrSize]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		left -= uint64(len(b) / phdrSize)
		for ; len(b) > 0; b = b[phdrSize:] {
			if err := c.addProgramHeader(b); err != nil {
				return err
			}
		}
	}
	return c.orderSegments()
}

func (c *Core) addProgramHeader(b []byte) error {
	le := binary.LittleEndian
	off, vaddr := le.Uint64(b[8:]), le.Uint64(b[16:])
	filesz, memsz := le.Uint64(b[32:]), le.Uint64(b[40:])
	switch le.Uint32(b) {
	case segNote:
		return c.readNotes(off, filesz, le.Uint64(b[48:]))
	case segLoad:
		if memsz == 0 {
			return nil
		}
		end, ok := arch.Addr(vaddr).Add(memsz)
		if !ok || filesz > memsz || off > math.MaxInt64-filesz {
			return fmt.Errorf("the dump is damaged: the sizes of the memory at %v are wrong", arch.Addr(vaddr))
		}
		s := segment{start: arch.Addr(vaddr), end: end, off: off, dumped: filesz, perm: permOf(le.Uint32(b[4:]))}
		if off < c.size {
			s.has = min(filesz, c.size-off)
		}
		c.segments = append(c.segments, s)
		return c.hold(segmentCosts)
	}
	return nil
}

// Bounds on the memory for a dump's description of the process, and, more or less, the cost of a
// snapshot of the dump, in bytes.
const (
	maxHeld      = 144 << 20
	segmentCosts = 320
	fileCosts    = 1 << 10
	threadCosts  = 2 << 10
)

// hold counts n more bytes of memory, up to a bound.
func (c *Core) hold(n int) error {
	if c.held += n; c.held > maxHeld {
		return errors.New("the dump describes more than is read of any dump: half a million pieces of memory, " +
			"or fewer with very many files and threads")
	}
	return nil
}

func permOf(flags uint32) (p target.Perm) {
	if flags&flagRead != 0 {
		p |= target.PermRead
	}
	if flags&flagWrite != 0 {
		p |= target.PermWrite
	}
	if flags&flagExec != 0 {
		p |= target.PermExec
	}
	return p
}

// orderSegments sorts the segments by address. It refuses overlapping segments, because either
// could be right.
func (c *Core) orderSegments() error {
	slices.SortFunc(c.segments, func(a, b segment) int {
		switch {
		case a.start < b.start:
			return -1
		case a.start > b.start:
			return 1
		}
		return 0
	})
	for i := 1; i < len(c.segments); i++ {
		if c.segments[i].start < c.segments[i-1].end {
			return fmt.Errorf("the dump is damaged: the memory at %v is there twice", c.segments[i].start)
		}
	}
	return nil
}

// segmentFrom returns the index of the first segment that ends above addr.
func (c *Core) segmentFrom(addr arch.Addr) int {
	return sort.Search(len(c.segments), func(i int) bool { return c.segments[i].end > addr })
}

// readDumped fills the beginning of p with the dump's memory at addr, and returns the number of
// bytes; 0: the dump has none.
func (c *Core) readDumped(p []byte, addr arch.Addr) (int, error) {
	i := c.segmentFrom(addr)
	if i == len(c.segments) || c.segments[i].start > addr {
		return 0, nil
	}
	s := &c.segments[i]
	o := uint64(addr - s.start)
	if o >= s.has {
		if o < s.dumped {
			return 0, errCut
		}
		return 0, nil
	}
	n := int(min(uint64(len(p)), s.has-o))
	// The file is shorter than at Open: it is being truncated.
	if got, err := c.file.ReadAt(p[:n], int64(s.off+o)); got < n {
		if err == io.EOF {
			err = errCut
		}
		return 0, err
	}
	return n, nil
}

// Dumped is the number of bytes, of n at most, that the dump itself has from addr on without a
// gap.
func (c *Core) Dumped(addr arch.Addr, n int) (has int) {
	for i := c.segmentFrom(addr); i < len(c.segments) && has < n; i++ {
		s, at := &c.segments[i], addr+arch.Addr(has)
		if at < s.start || uint64(at-s.start) >= s.has {
			break
		}
		has += int(min(uint64(n-has), s.has-uint64(at-s.start)))
	}
	return has
}

// cut is the number of bytes that the headers announce but the file lacks.
func (c *Core) cut() (n uint64) {
	for i := range c.segments {
		n += c.segments[i].dumped - c.segments[i].has
	}
	return n
}

func (c *Core) noThreads() error {
	switch {
	case c.notes.damaged:
		return errors.New("the dump is damaged within its notes, before the threads: copy or unpack the dump once more")
	case c.notes.cut, c.cut() > 0:
		return errors.New("the dump is cut off before the threads: the disk may have been full, " +
			"or the size of dumps limited (ulimit -c)")
	}
	return errors.New("the dump has no threads: give the dump of a process")
}
