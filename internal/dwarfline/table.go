package dwarfline

import (
	"errors"
	"fmt"
	"io"
	"math"

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

	read      bool
	err       error // why there is no index
	line      io.ReaderAt
	size      int64
	starts    []start              // ascending
	sequences map[int64][]sequence // of the units that were run, by the offset of the unit
	ran       int                  // units and sequences in sequences
	charged   struct{ starts, ran int }
	texts     map[string]texts  // sections with texts, by their names
	dirs      map[uint64]string // of compilation units, by the offset of their line table; nil: not read
	lastUnit  int64             // the unit of header
	header    *header
	last      map[uint64]string // names of files of header, by their numbers
	effort    *pace.Allowance   // for read bytes, except index's
	buffer    [16 << 10]byte    // for index
	head      [512]byte         // for readHeader
}

// Bounds of the bytes of a file that lookups may read, at once and over time.
const (
	maxEffort       = 1 << 28
	effortPerSecond = 16 << 20
)

// Bounds.
const (
	maxSequences   = 1 << 20
	sequenceCosts  = 80
	startCosts     = 24
	maxUnits       = 1 << 18
	maxRunBytes    = 16 << 20 // of a sequence, for a lookup
	maxOverlapping = 8        // sequences to try for an address
	maxTried       = 8        // units to try for an address
	maxLooked      = 1 << 12  // starts before an address to look at
	maxFiles       = 1 << 16  // of a unit, and directories
	maxName        = 4096     // bytes: PATH_MAX of Linux
	maxNames       = 1 << 20  // bytes, of the directories of a unit
	maxLastNames   = 1 << 10
)

// New returns the table of the file with the given sections. New asks reserve before it keeps memory.
func New(section Section, reserve func(bytes int64) error) *Table {
	return &Table{
		section: section, reserve: reserve, texts: map[string]texts{}, sequences: map[int64][]sequence{}, lastUnit: -1,
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
	list, err := t.around(addr)
	if err != nil {
		return Line{}, err
	}
	if len(list) == 0 {
		return Line{}, fmt.Errorf("%w: the table does not have the address", ErrNone)
	}
	var found Line
	for i := range list {
		l, err := t.run(&list[i], addr, start)
		if err != nil {
			return Line{}, err
		}
		if i > 0 && l != found { // the linker has folded functions of equal code
			return Line{}, fmt.Errorf("%w: several functions share the code", ErrNone)
		}
		found = l
	}
	return found, nil
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
