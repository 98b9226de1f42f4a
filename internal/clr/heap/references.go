package heap

import (
	"cmp"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// A description in front of a MethodTable tells the collector where objects of the class have references. The
// description has runs of references (series) or, for an array of structs, one run that is repeated for each element,
// with gaps.
//
// Sources (dotnet/runtime): src/coreclr/gc/gcdesc.h, gc/gc.cpp (go_through_object), vm/methodtable.h
// (enum_flag_ContainsGCPointers).
const (
	hasReferences = 0x01000000 // of MTFlags
	seriesLen     = 16         // bytes of one series: a summand for the object's size, and the offset
	maxSeries     = 1 << 10
)

// layoutOf has the places of references in objects of a class.
type layoutOf struct {
	series []series
	items  []item // of each element of an array of structs; empty: series counts
	start  uint32 // offset of the first element
}

// series is a run of references, from an offset on, in bytes.
type series struct {
	start uint32
	size  int64 // a summand for the object's size; negative
}

// item is a run of references, and the gap in bytes up to the next run.
type item struct{ count, skip uint32 }

func readLayout(mem *target.Reader, t *Table) (*layoutOf, error) {
	mt := t.Addr
	n, err := mem.Uint64(mt - 8)
	count := int64(n)
	if err != nil {
		return nil, err
	}
	if count == 0 || count > maxSeries || count < -maxSeries {
		return nil, errNoTable
	}
	if count < 0 {
		return readItems(mem, mt, int(-count))
	}
	b, err := mem.Bytes(mt-8-arch.Addr(count)*seriesLen, int(count)*seriesLen)
	if err != nil {
		return nil, err
	}
	out := &layoutOf{}
	for i := 0; i < len(b); i += seriesLen {
		s := series{
			size: int64(binary.LittleEndian.Uint64(b[i:])), start: uint32(binary.LittleEndian.Uint64(b[i+8:])),
		}
		if s.start < 8 || s.start%8 != 0 || s.start > maxBase || s.size < -maxBase || s.size > maxBase {
			return nil, errNoTable
		}
		out.series = append(out.series, s)
	}
	if out.overlap(t) {
		return nil, errNoTable
	}
	return out, nil
}

// maxFixed is the greatest BaseSize for References.
const maxFixed = 1 << 16

// References returns the offsets of the references in objects of a class, without those in elements. The offsets are
// in bytes from the start of an object, in rising order. base is the BaseSize of the MethodTable, which must have
// references.
func References(mem *target.Reader, mt arch.Addr, base uint32) ([]uint32, error) {
	t := &Table{Addr: mt, Base: base}
	if base > maxFixed || t.size(0) < minSize {
		return nil, errNoTable
	}
	l, err := readLayout(mem, t)
	if err != nil {
		return nil, err
	}
	var out []uint32
	if len(l.items) == 0 {
		l.each(t.size(0), func(from, n uint64) {
			for ; n > 0; from, n = from+8, n-8 {
				out = append(out, uint32(from))
			}
		})
	}
	return out, nil
}

// overlap reports whether two series have common references. An array can have any length, and has all references in
// one series.
func (l *layoutOf) overlap(t *Table) bool {
	if t.Component != 0 {
		return len(l.series) > 1
	}
	slices.SortFunc(l.series, func(a, b series) int { return cmp.Compare(a.start, b.start) })
	end := int64(0)
	for _, s := range l.series {
		n := int64(t.size(0)) + s.size
		if n <= 0 {
			continue
		}
		if int64(s.start) < end {
			return true
		}
		end = int64(s.start) + n
	}
	return false
}

// readItems reads the run that is repeated for each element. The run lies in place of the first series' size, and
// continues downwards.
func readItems(mem *target.Reader, mt arch.Addr, n int) (*layoutOf, error) {
	start, err := mem.Uint64(mt - 16)
	if err != nil {
		return nil, err
	}
	b, err := mem.Bytes(mt-24-8*arch.Addr(n-1), 8*n)
	if err != nil {
		return nil, err
	}
	out := &layoutOf{start: uint32(start)}
	step := uint64(0)
	for i := len(b) - 8; i >= 0; i -= 8 {
		it := item{binary.LittleEndian.Uint32(b[i:]), binary.LittleEndian.Uint32(b[i+4:])}
		if it.count == 0 || it.skip%8 != 0 {
			return nil, errNoTable
		}
		step += 8*uint64(it.count) + uint64(it.skip)
		out.items = append(out.items, it)
	}
	if step == 0 || step > maxBase || start < 16 || start%8 != 0 || start > maxBase {
		return nil, errNoTable
	}
	return out, nil
}

// slots reports whether objects of the class are arrays of references.
func (t *Table) slots() bool {
	return t != nil && t.Component == 8 && t.references != nil && len(t.references.series) == 1
}

// each calls a function with each run of references in an object of size bytes: the run's offset in the object, and
// its length in bytes.
func (l *layoutOf) each(size uint64, run func(from, n uint64)) {
	if len(l.items) == 0 {
		for _, s := range l.series {
			n := int64(size) + s.size
			if n > 0 && uint64(s.start)+uint64(n) <= size {
				run(uint64(s.start), uint64(n)&^7)
			}
		}
		return
	}
	for at := uint64(l.start); at+8 <= size; {
		for _, it := range l.items {
			n := 8 * uint64(it.count)
			if at+n > size {
				return
			}
			run(at, n)
			at += n + uint64(it.skip)
		}
	}
}
