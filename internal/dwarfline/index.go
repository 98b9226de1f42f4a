package dwarfline

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"clrsnap/internal/arch"
)

// A lookup needs the programs of one unit. To run all programs of a table takes as long as to read the table a hundred
// times, so the index only has the addresses that programs set: the address at which a sequence begins is always set.

// start is an address that a program sets, or what looks like such an operation. Then the unit is read in vain.
type start struct {
	addr arch.Addr
	unit int64 // offset
}

// sequence is a run of instructions with ascending addresses, [lo, hi).
type sequence struct {
	lo, hi arch.Addr
	unit   int64 // offset of the sequence's unit
	start  int64 // offset of its first opcode
}

// setAddress is the operation that sets an address of 8 bytes: an extended opcode of 9 bytes (6.2.5.3). A unit without
// such an operation is read as a whole.
var setAddress = []byte{0, 9, opSetAddress}

// index finds the addresses that the programs of all units set.
func (t *Table) index() error {
	var err error
	if t.line, t.size, err = t.section(".debug_line"); err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	units := 0
	for at := int64(0); at < t.size && units < maxUnits; units++ {
		r := &reader{src: t.line, free: t.head[:], base: at, end: t.size}
		n, err := r.length()
		if err != nil || n > uint64(t.size-r.pos()) {
			break
		}
		end := r.pos() + int64(n)
		if err := t.indexUnit(at, r.pos(), end); err != nil {
			return err
		}
		at = end
	}
	slices.SortFunc(t.starts, func(a, b start) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.unit, b.unit))
	})
	return nil
}

// indexUnit adds the addresses that the programs of the unit at an offset set. from is the offset behind the unit's
// length.
func (t *Table) indexUnit(unit, from, end int64) error {
	found := false
	const size = 8
	for from < end {
		b := t.buffer[:min(int64(len(t.buffer)), end-from)]
		n, err := t.line.ReadAt(b, from)
		if b = b[:n]; n < len(setAddress)+size {
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("%w: %w", ErrNone, err)
			}
			break
		}
		for i := 0; ; i++ {
			next := bytes.Index(b[i:len(b)-size], setAddress)
			if next < 0 {
				break
			}
			i += next
			found = true
			addr := arch.Addr(binary.LittleEndian.Uint64(b[i+len(setAddress):]))
			if err := t.addStart(start{addr, unit}); err != nil {
				return err
			}
		}
		from += int64(n - len(setAddress) - size + 1)
	}
	if found {
		return nil
	}
	list, err := t.sequencesOf(unit)
	for _, s := range list {
		err = cmp.Or(err, t.addStart(start{s.lo, unit}))
	}
	return err
}

// addStart adds a start. The linker leaves 0 in discarded code.
func (t *Table) addStart(s start) error {
	if s.addr == 0 {
		return nil
	}
	if err := t.charge(&t.charged.starts, len(t.starts)+1, startCosts); err != nil {
		return err
	}
	t.starts = append(t.starts, s)
	return nil
}

// charge reserves memory for n things, of which so many are charged already.
func (t *Table) charge(charged *int, n, costs int) error {
	if n > maxSequences {
		return fmt.Errorf("%w: more than %d sequences", ErrNone, maxSequences)
	}
	const many = 1024 // charged at once
	for ; *charged < n; *charged += many {
		if err := t.reserve(int64(many * costs)); err != nil {
			return fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	return nil
}

// around returns the sequences around an address, each once, the unit that begins the nearest first.
func (t *Table) around(addr arch.Addr) (out []sequence, err error) {
	var tried []int64
	i := sort.Search(len(t.starts), func(i int) bool { return t.starts[i].addr > addr }) - 1
	for looked := 0; i >= 0 && len(tried) < maxTried; i-- {
		s := t.starts[i]
		if len(out) > 0 && s.addr < out[0].lo {
			break
		}
		if looked++; looked > maxLooked {
			return nil, fmt.Errorf("%w: too many functions are around the address", ErrNone)
		}
		if slices.Contains(tried, s.unit) {
			continue
		}
		tried = append(tried, s.unit)
		list, err := t.sequencesOf(s.unit)
		if err != nil {
			return nil, err
		}
		for _, q := range list {
			if q.lo <= addr && addr < q.hi && len(out) < maxOverlapping {
				out = append(out, q)
			}
		}
	}
	return out, nil
}

// sequencesOf runs the programs of a unit. An error in a unit spoils only the unit itself.
func (t *Table) sequencesOf(unit int64) ([]sequence, error) {
	if list, ok := t.sequences[unit]; ok {
		return list, nil
	}
	t.ran++
	if err := t.charge(&t.charged.ran, t.ran, sequenceCosts); err != nil {
		return nil, err
	}
	list, err := t.runAll(unit)
	t.sequences[unit] = list
	return list, err
}

// runAll finds the sequences of a unit.
func (t *Table) runAll(unit int64) (out []sequence, err error) {
	var h header
	if t.readHeader(&h, unit) != nil {
		return nil, nil
	}
	m := t.machine(&h, h.program, t.buffer[:])
	start, lo, first := h.program, arch.Addr(0), true
	for {
		row, ended, err := m.step()
		if err != nil {
			return out, nil
		}
		if row && first {
			lo, first = m.address, false
		}
		if !ended {
			continue
		}
		// The linker leaves 0, or the highest addresses, in discarded code.
		if !first && lo > 0 && m.address > lo && m.ascending {
			t.ran++
			if err := t.charge(&t.charged.ran, t.ran, sequenceCosts); err != nil {
				return nil, err
			}
			out = append(out, sequence{lo: lo, hi: m.address, unit: unit, start: start})
		}
		start, first = m.in.pos(), true
	}
}
