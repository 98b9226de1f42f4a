package ecma335

import (
	"cmp"
	"slices"
	"sort"
	"sync"
)

// sortedColumns are the columns that lookups search by. II.22 requires sorted
// tables, but uncompressed metadata (#-) and some tools have unsorted tables.
var sortedColumns = [...]struct {
	table Table
	col   int
}{
	byNested:      {TableNestedClass, 0},
	byOwner:       {TableGenericParam, 2},
	byInterface:   {TableInterfaceImpl, 0},
	byForwarded:   {TableImplMap, 1},
	byAttributed:  {TableCustomAttribute, 0},
	byImplementer: {TableMethodImpl, 0},
}

const (
	byNested = iota
	byOwner
	byInterface
	byForwarded
	byAttributed
	byImplementer
)

// sortedTable is the order of a table's rows, computed at the first lookup.
type sortedTable struct {
	once  sync.Once
	order []uint32 // nil: the rows are in order
}

// lookup returns the positions [lo, hi) of the rows whose key column is key;
// at turns a position into a row number.
func (m *Metadata) lookup(which int, key uint32) (lo, hi int) {
	s := m.sort(which)
	c := sortedColumns[which]
	n := int(m.tables[c.table].rows)
	at := func(i int) uint32 { return m.raw(c.table, s.at(i), c.col) }
	lo = sort.Search(n, func(i int) bool { return at(i) >= key })
	hi = lo + sort.Search(n-lo, func(i int) bool { return at(lo+i) > key })
	return lo, hi
}

// sort orders the rows of a table for lookups, with a single pass over rows
// already in order. The header's Sorted bits cannot be trusted.
func (m *Metadata) sort(which int) *sortedTable {
	s := &m.sorted[which]
	s.once.Do(func() {
		c := sortedColumns[which]
		n := m.tables[c.table].rows
		inOrder := true
		for rid := uint32(2); rid <= n && inOrder; rid++ {
			inOrder = m.raw(c.table, rid-1, c.col) <= m.raw(c.table, rid, c.col)
		}
		if inOrder {
			return
		}
		s.order = make([]uint32, n) // no larger than the table itself
		for i := range s.order {
			s.order[i] = uint32(i) + 1
		}
		slices.SortStableFunc(s.order, func(a, b uint32) int {
			return cmp.Compare(m.raw(c.table, a, c.col), m.raw(c.table, b, c.col))
		})
	})
	return s
}

func (s *sortedTable) at(i int) uint32 {
	if s.order == nil {
		return uint32(i) + 1
	}
	return s.order[i]
}
