package lock

import (
	"encoding/binary"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// In a native AOT program (.NET 11) the sync table is managed, too: an array of structs, in a static field. An entry
// has the Lock, and a handle of the object. The word in front of an object is as in CoreCLR. The handle does not move,
// and stands for the SyncBlock.
//
// Sources (System.Private.CoreLib): SyncTable.cs, ObjectHeader.cs, DependentHandle.cs.

// VersionAhead is the version of the contract SyncBlock of native AOT programs.
const VersionAhead contract.Version = "n1"

// entryClass is the class of the entries. The class has a name in the metadata of each program that uses monitors.
const entryClass = "System.Threading.SyncTable+Entry"

// Bounds of a search for the table.
const (
	maxHolders  = 1 << 16 // objects with static fields
	maxSearches = 1 << 10 // for the record of a wait
	maxStatics  = 1 << 10 // static fields of one class, in words
	maxFields   = 1 << 18 // static fields of all classes, in words
	longestRest = 1 << 10 // between two searches, in questions
)

type aheadLayout struct {
	Size  uint32 `clr:"size:System.Threading.SyncTable+Entry"`
	Lock  uint32 `clr:"System.Threading.SyncTable+Entry.Lock"`  // a reference
	Owner uint32 `clr:"System.Threading.SyncTable+Entry.Owner"` // a handle
	Items uint32 `clr:"Array.!"`
	Count uint32 `clr:"Array.m_NumComponents"`
}

// ahead is the sync table of a native AOT program.
type ahead struct {
	l        aheadLayout
	holders  func() ([]arch.Addr, error)
	searches int       // for the static field with the record of a wait
	field    arch.Addr // the static field with the table; 0: not found yet

	rest, left int // after a search in vain: so many questions have no search; and those that are left
}

// NewAhead binds the locks of a native AOT program that d describes. holders lists the objects that have the static
// fields of classes; such objects do not move.
func NewAhead(mem, whole target.Memory, d *contract.Descriptor, objects *object.Reader,
	holders func() ([]arch.Addr, error)) (*Store, error) {
	s := &Store{mem: target.NewReader(mem), table: target.NewReader(whole), objects: objects,
		ahead: &ahead{holders: holders}}
	if err := d.Require(map[string][]contract.Version{Contract: {VersionAhead}}); err != nil {
		return nil, err
	}
	l := &s.ahead.l
	if err := d.Bind(l); err != nil {
		return nil, err
	}
	if l.Size < 8 || l.Size > maxEntry || l.Lock > l.Size-8 || l.Owner > l.Size-8 {
		return nil, fmt.Errorf("%w: entries of %d bytes in the sync table", contract.ErrFormat, l.Size)
	}
	return s, nil
}

// entriesAt returns the place of the entries, and their number.
func (s *Store) entriesAt(mem *target.Reader) (at arch.Addr, count int, err error) {
	a := s.ahead
	if a.field == 0 {
		if a.left--; a.left >= 0 {
			return 0, 0, errNoTable
		}
		if err := s.findTable(); err != nil {
			a.rest = min(2*a.rest+1, longestRest)
			a.left = a.rest
			return 0, 0, err
		}
	}
	table, err := mem.Pointer(a.field)
	if err != nil || table == 0 {
		return 0, 0, err
	}
	n, err := mem.Uint32(table + arch.Addr(a.l.Count))
	if err == nil && n > largestSyncIndex+1 {
		err = ErrChanging
	}
	return table + arch.Addr(a.l.Items), int(n), err
}

// findTable finds the static field with the table: an array of entries.
func (s *Store) findTable() error {
	holders, err := s.ahead.holders()
	if err != nil {
		return err
	}
	fields := 0
	for _, h := range holders[:min(len(holders), maxHolders)] {
		c, err := s.objects.Class(h)
		if err != nil {
			continue
		}
		size, err := s.objects.Size(c.Table)
		if err != nil || size > 8*maxStatics {
			continue
		}
		for at := h + 8; at < h+arch.Addr(size) && fields < maxFields; at += 8 {
			if fields++; s.isTable(at) {
				s.ahead.field = at
				return nil
			}
		}
	}
	return errNoTable
}

var errNoTable = fmt.Errorf("%w: the program has no sync table", ErrChanging)

// isTable reports whether a static field refers to an array of entries.
func (s *Store) isTable(field arch.Addr) bool {
	obj, err := s.mem.Pointer(field)
	if err != nil || obj == 0 {
		return false
	}
	element, err := s.objects.ElementClass(obj)
	if err != nil || !element.Is(coreLib, entryClass) {
		return false
	}
	_, _, size, err := s.objects.Elements(obj)
	return err == nil && size == s.ahead.l.Size
}

// aheadEntry reads an entry of the table.
func (s *Store) aheadEntry(index int) (e entry, err error) {
	at, count, err := s.entriesAt(s.mem)
	if err != nil {
		return e, err
	}
	if index <= 0 || index >= count {
		return e, ErrChanging
	}
	b, err := s.mem.Bytes(at+arch.Addr(index)*arch.Addr(s.ahead.l.Size), int(s.ahead.l.Size))
	if err != nil {
		return e, err
	}
	e, err = s.parseAhead(s.mem, b, index)
	if err == nil && e.object == 0 {
		err = ErrChanging
	}
	return e, err
}

// parseAhead decodes an entry. An entry without an object is free, or its object is gone.
func (s *Store) parseAhead(mem *target.Reader, b []byte, index int) (e entry, err error) {
	l := &s.ahead.l
	e = entry{
		lock: arch.Addr(binary.LittleEndian.Uint64(b[l.Lock:])), index: index,
		block: arch.Addr(binary.LittleEndian.Uint64(b[l.Owner:])),
	}
	if e.block == 0 || e.lock == 0 {
		return entry{}, nil
	}
	e.object, err = mem.Pointer(e.block)
	return e, err
}

// aheadMonitor reads the monitor of an object with an entry in the table.
func (s *Store) aheadMonitor(index int, obj arch.Addr) (m Monitor, err error) {
	e, err := s.aheadEntry(index)
	if err != nil {
		return m, err
	}
	if e.object != obj {
		return m, ErrChanging
	}
	return s.aheadOf(&e)
}

// aheadOf reads the Lock of an entry.
func (s *Store) aheadOf(e *entry) (m Monitor, err error) {
	c, err := s.objects.Class(e.lock)
	if err != nil {
		return m, err
	}
	if !c.Is(coreLib, lockClass) {
		return m, ErrChanging
	}
	m, err = s.lockOf(e.lock, c)
	m.Object, m.Block, m.Lock = e.object, e.block, e.lock
	return m, err
}

// InfoIn is InfoRange for a native AOT program: the static field lies in the block of static fields of a thread. The
// place in blocks is found once, by a thread that waits. block and size are those of the block, low and high are the
// bounds of the thread's stack.
func (s *Store) InfoIn(block arch.Addr, size uint32, low, high arch.Addr) (r target.Range, ok bool) {
	a := s.ahead
	if a == nil {
		return r, false
	}
	if s.infoAt == 0 {
		if a.searches++; a.searches > maxSearches {
			return r, false
		}
		s.infoAt = s.findInfo(block, size, low, high)
	}
	return target.Range{Addr: block + arch.Addr(s.infoAt), Len: 8}, s.infoAt != 0 && s.infoAt <= size-8
}

// findInfo returns the offset in a block of a field that leads to a record of a wait; 0: there is none.
func (s *Store) findInfo(block arch.Addr, size uint32, low, high arch.Addr) uint32 {
	b, err := s.mem.Bytes(block, int(size))
	if err != nil {
		return 0
	}
	for off := 8; off+8 <= len(b); off += 8 {
		at := arch.Addr(binary.LittleEndian.Uint64(b[off:]))
		if at.In(low, high) && at%8 == 0 && s.isInfo(at, low, high) {
			return uint32(off)
		}
	}
	return 0
}

// isInfo reports whether a stack has a record of a wait at an address.
func (s *Store) isInfo(at, low, high arch.Addr) bool {
	b, err := s.mem.Bytes(at, infoLen)
	if err != nil {
		return false
	}
	slot := arch.Addr(binary.LittleEndian.Uint64(b[infoSlot:]))
	next := arch.Addr(binary.LittleEndian.Uint64(b[infoNext:]))
	kind, wait := binary.LittleEndian.Uint32(b[infoKind:]), int32(binary.LittleEndian.Uint32(b[infoKind+4:]))
	if !slot.In(low, high) || slot%8 != 0 || wait < -1 || next != 0 && (next <= at || next >= high) {
		return false
	}
	obj, err := s.mem.Pointer(slot)
	if err != nil {
		return false
	}
	c, err := s.objects.Class(obj)
	return err == nil && (kind == ofLock && c.Is(coreLib, lockClass) ||
		kind == ofCondition && c.Is(coreLib, conditionClass))
}

// aheadEntry takes the monitor of an entry, if the monitor is held; false: the look ends.
func (l *tableLook) aheadEntry(e *entry) bool {
	if l.locks++; l.locks > maxLocks {
		l.all = false
		return false
	}
	m, err := l.s.aheadOf(e)
	if err != nil {
		l.all = false
		return true
	}
	if m.Owner == 0 {
		return true
	}
	if len(l.held) == maxHeld {
		l.all = false
		return false
	}
	l.held = append(l.held, m)
	return true
}

// aheadEntries is entries.
func (s *Store) aheadEntries(take func([]entry) bool) (all bool, err error) {
	at, count, err := s.entriesAt(s.table)
	if err != nil {
		return false, err
	}
	size := int(s.ahead.l.Size)
	end := min(count, maxEntries)
	for index := 1; index < end; {
		n := min(chunk, end-index)
		b, err := s.table.Bytes(at+arch.Addr(index*size), n*size)
		if err != nil {
			return false, nil
		}
		var list []entry
		for ; len(b) >= size; b = b[size:] {
			e, err := s.parseAhead(s.table, b, index)
			if index++; err == nil && e.object != 0 {
				list = append(list, e)
			}
		}
		if !take(list) {
			return false, nil
		}
	}
	return end == count, nil
}
