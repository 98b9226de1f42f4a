package target

import (
	"testing"

	"clrsnap/internal/arch"
)

// countedPages counts the reads of memory of some pages.
type countedPages struct {
	*bytesAt
	reads, many int
	gone        arch.Addr // a page that cannot be read any more
}

func (m *countedPages) ReadMemory(p []byte, at arch.Addr) error {
	m.reads++
	if m.gone != 0 && at&^(pageSize-1) == m.gone {
		return &ReadError{Addr: at, Len: len(p)}
	}
	return m.bytesAt.ReadMemory(p, at)
}

func (m *countedPages) ReadMany(pieces []Region) error {
	m.many++
	before := m.reads
	defer func() { m.reads = before }()
	for _, p := range pieces {
		if err := m.ReadMemory(p.Data, p.Base); err != nil {
			return err
		}
	}
	return nil
}

// TestRegulars: pages that are read at each moment are read at once from the third moment on, as they are then; pages
// that are not read any more are left out, and a page that is gone does no harm.
func TestRegulars(t *testing.T) {
	m := &countedPages{bytesAt: &bytesAt{0x10000, make([]byte, 16*pageSize)}}
	c := NewCache(m, 64)
	moment := func(pages ...int) {
		t.Helper()
		c.Invalidate()
		m.reads, m.many = 0, 0
		for i := range m.data {
			if i%pageSize == 0 {
				m.data[i]++
			}
		}
		for _, n := range pages {
			var b [1]byte
			if err := c.ReadMemory(b[:], 0x10000+arch.Addr(n)*pageSize); err != nil || b[0] != m.data[n*pageSize] {
				t.Errorf("page %d is %d, not %d, %v", n, b[0], m.data[n*pageSize], err)
			}
		}
	}
	want := func(what string, reads, many int) {
		t.Helper()
		if m.reads != reads || m.many != many {
			t.Errorf("%s: %d reads, and %d of many pages", what, m.reads, m.many)
		}
	}
	moment(1, 3, 5, 7)
	want("at first", 4, 0)
	moment(1, 3, 5, 8)
	want("once more", 4, 0)
	moment(1, 3, 5, 9)
	want("three regulars", 1, 1)
	moment(9, 5)
	want("two fewer", 1, 1)
	moment(5, 9)
	want("a page that comes again", 0, 1)
	for range mostMarks {
		moment(5, 9)
	}
	if m.gone = 0x10000 + pageSize; len(c.regulars.pages) != 2 {
		t.Errorf("regulars are %v", c.regulars.pages)
	}
	moment(5, 9)
	want("without the pages that are not read", 0, 1)
	m.gone = 0x10000 + 9*pageSize
	moment(5)
	want("a page that is gone", 1, 1)
}

// TestRegularsSeldomRead: a page that is read at every second moment is read in vain at half of the other moments at
// most.
func TestRegularsSeldomRead(t *testing.T) {
	const seldom, others = 0x10000, 20
	c := NewCache(&countedPages{bytesAt: &bytesAt{seldom, make([]byte, 4*pageSize)}}, 64)
	vain := 0
	for moment := range 2 * others {
		c.Invalidate()
		for n := range arch.Addr(4) {
			var b [1]byte
			if n == 0 && moment%2 == 1 {
				continue
			}
			if err := c.ReadMemory(b[:], seldom+n*pageSize); err != nil {
				t.Fatal(err)
			}
		}
		if _, there := c.index[seldom]; there && moment%2 == 1 {
			vain++
		}
	}
	if vain > others/2 {
		t.Errorf("the page is read in vain at %d of %d moments", vain, others)
	}
}
