package heap

import (
	"errors"
	"fmt"
	"sync"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Table is a MethodTable, the class of an object, as a walk knows it.
type Table struct {
	Addr      arch.Addr
	Base      uint32 // bytes of an object without elements
	Component uint32 // bytes of one element of an array or a string; 0: the class has no elements
	Free      bool   // no object, but space between objects
	Index     int    // in Census.Tables
	wanted    bool

	references *layoutOf // nil: the class has no references, or they are not asked for
}

// size returns the size in bytes of an object with so many elements.
func (t *Table) size(elements uint32) uint64 {
	return (uint64(t.Base) + uint64(t.Component)*uint64(elements) + 7) &^ 7
}

// Bounds of MethodTables.
const (
	maxClasses = 1 << 18
	maxBase    = 1 << 26 // bytes; a class can have many fields
	freeBase   = minSize // of the collector's objects in free space (gc.cpp, free_object_base_size)
)

var errNoTable = errors.New("not the MethodTable of an object")

// tables are the MethodTables of a walk. Each MethodTable is checked once. tables is safe for concurrent use.
type tables struct {
	mu     sync.Mutex
	mem    *target.Reader
	l      *layout
	free   arch.Addr // the MethodTable of free space; 0: not known
	check  func(mt arch.Addr) error
	want   func(mt arch.Addr) bool
	refs   bool // the places of references are asked for
	byAddr map[arch.Addr]*Table
	all    []*Table
}

// get returns the MethodTable at an address, if there is a MethodTable.
func (s *tables) get(mt arch.Addr) (*Table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byAddr[mt]; t != nil {
		return t, nil
	}
	t, err := s.read(mt)
	if err != nil {
		return nil, err
	}
	if len(s.all) >= maxClasses {
		return nil, fmt.Errorf("%w: more than %d classes", errNoTable, maxClasses)
	}
	t.Index = len(s.all)
	s.all = append(s.all, t)
	s.byAddr[mt] = t
	return t, nil
}

func (s *tables) read(mt arch.Addr) (*Table, error) {
	if mt < lowestTable || mt >= maxAddress || mt%8 != 0 {
		return nil, errNoTable
	}
	flags, err := s.mem.Uint32(mt + arch.Addr(s.l.Flags))
	if err != nil {
		return nil, err
	}
	t := &Table{Addr: mt}
	if t.Base, err = s.mem.Uint32(mt + arch.Addr(s.l.BaseSize)); err != nil {
		return nil, err
	}
	if flags&hasComponents != 0 {
		t.Component = flags & 0xffff
	}
	if t.size(0) < minSize || t.Base > maxBase {
		return nil, errNoTable
	}
	if mt == s.free {
		if t.Free = t.Base == freeBase && t.Component == 1; !t.Free {
			return nil, errNoTable
		}
		return t, nil
	}
	if err := s.check(mt); err != nil {
		return nil, err
	}
	if s.refs && flags&hasReferences != 0 {
		if t.references, err = readLayout(s.mem, t); err != nil {
			return nil, err
		}
	}
	t.wanted = s.want != nil && s.want(mt)
	return t, nil
}

// lowestTable: no memory lies below (vm.mmap_min_addr).
const lowestTable = 1 << 16

// known is a MethodTable in the form for the innermost loop.
type known struct {
	mt        uint64
	base      uint32
	component uint32
	index     int32
	flags     uint8
}

const (
	knownFree = 1 << iota
	knownWanted
)

// knownBits is the size of a cache of MethodTables, as a power of 2.
const knownBits = 11

// A cache has the last MethodTables met, for one goroutine.
type cache [1 << knownBits]known

// slot returns the place of a MethodTable in the cache.
func (c *cache) slot(mt uint64) *known {
	return &c[(mt>>3*0x9e37_79b9_7f4a_7c15)>>(64-knownBits)]
}

// fill puts a MethodTable into the cache.
func (c *cache) fill(t *Table) *known {
	k := c.slot(uint64(t.Addr))
	*k = known{mt: uint64(t.Addr), base: t.Base, component: t.Component, index: int32(t.Index)}
	if t.Free {
		k.flags |= knownFree
	}
	if t.wanted {
		k.flags |= knownWanted
	}
	return k
}
