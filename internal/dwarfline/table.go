package dwarfline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"clrsnap/internal/arch"
	"clrsnap/internal/pace"
)

// Errors that this package's errors wrap.
var (
	// ErrNone: no line belongs to an address.
	ErrNone = errors.New("no line")
	// ErrFormat: a section breaks the format's rules.
	ErrFormat = errors.New("malformed DWARF")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Section returns a section, and its size in bytes.
type Section func(name string) (io.ReaderAt, int64, error)

// Line is a place in a source file.
type Line struct {
	File   string // a path on the compiling machine, relative if the compiler did not name the base
	Line   int    // counted from 1
	Column int    // likewise; 0: unknown
}

// Table is the line table of a file. It is not safe for concurrent use.
type Table struct {
	section Section
	reserve func(bytes int64) error

	read     bool
	err      error // why there is no index
	line     io.ReaderAt
	size     int64
	indexed  []sequence
	texts    map[string]texts  // sections with texts, by their names
	dirs     map[uint64]string // of compilation units, by the offset of their line table; nil: not read
	lastUnit int64             // the unit of header
	header   *header
	last     map[uint64]string // names of files of header, by their numbers
	effort   *pace.Allowance   // for read bytes, except index's
	buffer   [16 << 10]byte    // for index
	head     [512]byte         // for readHeader
}

// sequence is a run of instructions with ascending addresses, [lo, hi).
type sequence struct {
	lo, hi arch.Addr
	most   arch.Addr // the highest hi of this sequence and all sequences before
	unit   int64     // offset of the sequence's unit
	start  int64     // offset of its first opcode
}

// Bounds of the bytes of a file that lookups may read, at once and over time.
const (
	maxEffort       = 1 << 28
	effortPerSecond = 16 << 20
)

// Bounds.
const (
	maxSequences   = 1 << 20
	sequenceCosts  = 40
	maxUnits       = 1 << 18
	maxRunBytes    = 16 << 20 // of a sequence, for a lookup
	maxOverlapping = 8        // sequences to try for an address
	maxLooked      = 1 << 12  // sequences before an address to look at
	maxFiles       = 1 << 16  // of a unit, and directories
	maxName        = 4096     // bytes: PATH_MAX of Linux
	maxNames       = 1 << 20  // bytes, of the directories of a unit
	maxLastNames   = 1 << 10
)

// New returns the table of the file with the given sections. New asks reserve before it keeps memory.
func New(section Section, reserve func(bytes int64) error) *Table {
	return &Table{
		section: section, reserve: reserve, texts: map[string]texts{}, lastUnit: -1,
		effort: pace.NewAllowance(maxEffort, effortPerSecond),
	}
}

// Lookup returns the line of the instruction at a link-time address. The error wraps ErrNone if there is
// no line. The first lookup reads the whole table.
func (t *Table) Lookup(addr arch.Addr) (Line, error) { return t.LookupIn(addr, 0) }

// LookupIn is Lookup for an instruction of the function that begins at start. Rows in front of the function belong to
// another function: a compiler may have no rows for a function of its own making.
func (t *Table) LookupIn(addr, start arch.Addr) (Line, error) {
	if !t.read {
		t.read = true
		t.err = t.index()
	}
	if t.err != nil {
		return Line{}, t.err
	}
	i := sort.Search(len(t.indexed), func(i int) bool { return t.indexed[i].lo > addr }) - 1
	var found Line
	have := false
	for tried, looked := 0, 0; i >= 0 && t.indexed[i].most > addr && tried < maxOverlapping; i-- {
		if looked++; looked > maxLooked {
			return Line{}, fmt.Errorf("%w: too many functions are around the address", ErrNone)
		}
		s := &t.indexed[i]
		if addr >= s.hi {
			continue
		}
		tried++
		l, err := t.run(s, addr, start)
		if err != nil {
			return Line{}, err
		}
		if have && l != found { // the linker has folded functions of equal code
			return Line{}, fmt.Errorf("%w: several functions share the code", ErrNone)
		}
		found, have = l, true
	}
	if !have {
		return Line{}, fmt.Errorf("%w: the table does not have the address", ErrNone)
	}
	return found, nil
}

// index finds the sequences.
func (t *Table) index() error {
	var err error
	if t.line, t.size, err = t.section(".debug_line"); err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	units := 0
	var h header
	for at := int64(0); at < t.size && units < maxUnits; units++ {
		next, err := t.indexUnit(&h, at)
		if err != nil {
			return err
		}
		if next <= at {
			break
		}
		at = next
	}
	slices.SortFunc(t.indexed, func(a, b sequence) int {
		return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.hi, b.hi), cmp.Compare(a.start, b.start))
	})
	most := arch.Addr(0)
	for i := range t.indexed {
		most = max(most, t.indexed[i].hi)
		t.indexed[i].most = most
	}
	return nil
}

// indexUnit adds the sequences of the unit at an offset, and returns the offset of the next unit. An error in
// a unit spoils only the unit itself. The unit's header goes into h.
func (t *Table) indexUnit(h *header, at int64) (next int64, err error) {
	if err := t.readHeader(h, at); err != nil {
		if h.end > at {
			return h.end, nil
		}
		return t.size, nil
	}
	m := t.machine(h, h.program, t.buffer[:])
	start, lo, first := h.program, arch.Addr(0), true
	for {
		row, ended, err := m.step()
		if err != nil {
			return h.end, nil
		}
		if row && first {
			lo, first = m.address, false
		}
		if !ended {
			continue
		}
		// The linker leaves 0, or the highest addresses, in discarded code.
		if !first && lo > 0 && m.address > lo && m.ascending {
			if err := t.add(sequence{lo: lo, hi: m.address, unit: at, start: start}); err != nil {
				return 0, err
			}
		}
		start, first = m.in.pos(), true
	}
}

const many = 1024 // sequences charged at once

func (t *Table) add(s sequence) error {
	if len(t.indexed) >= maxSequences {
		return fmt.Errorf("%w: more than %d sequences", ErrNone, maxSequences)
	}
	if len(t.indexed)%many == 0 {
		if err := t.reserve(many * sequenceCosts); err != nil {
			return fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	t.indexed = append(t.indexed, s)
	return nil
}

// run finds the last row of a sequence that begins at an address or before.
func (t *Table) run(s *sequence, addr, start arch.Addr) (Line, error) {
	if t.lastUnit != s.unit {
		h := &header{}
		if err := t.readHeader(h, s.unit); err != nil {
			return Line{}, err
		}
		t.header, t.lastUnit, t.last = h, s.unit, map[uint64]string{}
	}
	m := t.machine(t.header, s.start, nil)
	var at registers
	have := false
	for m.in.pos()-s.start < maxRunBytes {
		row, ended, err := m.step()
		if err != nil {
			return Line{}, err
		}
		if (row || ended) && m.address > addr {
			break
		}
		if row {
			at, have = m.registers, true
		}
		if ended {
			have = false
			break
		}
	}
	if !have || at.address < start || at.line == 0 || at.line > math.MaxInt32 {
		return Line{}, fmt.Errorf("%w: the compiler names none for the instruction", ErrNone)
	}
	name, err := t.file(at.file)
	if err != nil {
		return Line{}, err
	}
	return Line{File: name, Line: int(at.line), Column: int(min(at.column, math.MaxInt32))}, nil
}

// file names a file of the last unit.
func (t *Table) file(number uint64) (string, error) {
	if name, ok := t.last[number]; ok {
		return name, nil
	}
	name, err := t.header.fileName(t, number)
	if err != nil {
		return "", err
	}
	if len(t.last) >= maxLastNames {
		clear(t.last)
	}
	t.last[number] = name
	return name, nil
}
