package lock

import (
	"cmp"
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// Bounds of a look through the sync table.
const (
	maxEntries  = 1 << 20
	chunk       = 1 << 12 // entries of one read
	window      = 1 << 16 // bytes of sync blocks of one read
	maxHeld     = 1 << 12
	maxBytes    = 256 << 20 // of sync blocks in one look
	unreadTries = 16        // unreadable blocks before the look ends
	maxLocks    = 1 << 15   // objects behind SyncBlocks (.NET 11), read one by one
)

// Held returns the held monitors with a SyncBlock. Held looks through the whole table, piece by piece, within bounds:
// all is false if there may be more monitors. Unlike the results of At and Of, Held's monitors are not checked.
func (s *Store) Held() (held []Monitor, all bool, err error) {
	l := tableLook{s: s, buf: make([]byte, window), all: true}
	all, err = s.entries(l.chunk)
	return l.held, all && l.all, err
}

// tableLook is a look through the sync table.
type tableLook struct {
	s      *Store
	held   []Monitor
	all    bool
	unread int // blocks that could not be read
	locks  int // objects that were read
	bytes  int // of blocks that were read
	buf    []byte
	have   []byte // the part of buf that has been read
	from   arch.Addr
}

// entry is a used entry of the sync table.
type entry struct {
	block, object arch.Addr
	index         int
	lock          arch.Addr // of a native AOT program: the entry has no SyncBlock
}

// sortEntries sorts entries by the addresses of their blocks.
func sortEntries(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.block, b.block) })
}

// chunk takes the monitors of a part of the table; false: the look ends.
func (l *tableLook) chunk(entries []entry) bool {
	sortEntries(entries)
	for _, e := range entries {
		if l.s.ahead != nil {
			if !l.aheadEntry(&e) {
				return false
			}
			continue
		}
		var b []byte
		if plausible(e.block) {
			b = l.block(e.block)
		}
		if b == nil {
			if l.unread++; l.unread > unreadTries {
				l.all = false
				return false
			}
			l.all = l.all && !plausible(e.block)
			continue
		}
		m, ok := l.monitor(b, e.index)
		if !ok || m.Owner == 0 {
			continue
		}
		if len(l.held) == maxHeld {
			l.all = false
			return false
		}
		m.Object, m.Block = e.object, e.block
		l.held = append(l.held, m)
	}
	return true
}

// monitor decodes a SyncBlock of an entry; false: the SyncBlock makes no sense, or the bound on objects is reached.
func (l *tableLook) monitor(b []byte, entry int) (m Monitor, ok bool) {
	if !l.s.Managed() {
		m, index, err := l.s.parse(b)
		return m, err == nil && index == entry
	}
	if binary.LittleEndian.Uint64(b[l.s.m.Lock:]) != 0 {
		if l.locks == maxLocks {
			l.all = false
			return m, false
		}
		l.locks++
	}
	m, err := l.s.parseManaged(b)
	return m, err == nil
}

// block returns the first bytes of a SyncBlock; nil: the SyncBlock cannot be read.
func (l *tableLook) block(at arch.Addr) []byte {
	if at < l.from || len(l.have) < blockLen || uint64(at-l.from) > uint64(len(l.have)-blockLen) {
		if l.bytes += len(l.buf); l.bytes > maxBytes {
			l.have = nil
			return nil
		}
		l.from, l.have = at, l.buf
		if l.s.table.ReadMemory(l.have, at) != nil {
			l.have = l.buf[:blockLen] // near the end of the memory
			if l.s.table.ReadMemory(l.have, at) != nil {
				l.have = nil
				return nil
			}
		}
	}
	return l.have[at-l.from:][:blockLen]
}

// The runtime does not clear the unused part of the table: the remains of earlier data can look like entries. No
// block is at an address outside these bounds.
const (
	lowestBlock  = 1 << 16
	highestBlock = 1 << 56
)

// plausible reports whether there can be a block at an address.
func plausible(block arch.Addr) bool {
	return block >= lowestBlock && block < highestBlock && block%8 == 0
}

// end returns the index of the first entry that has never been used; 0: not known. From .NET 11 on, the
// SyncBlockCache has the index (src/coreclr/vm/syncblk.h, m_FreeSyncTableIndex).
func (s *Store) end() (int, error) {
	if s.l.Cache == 0 || s.l.Free == contract.Absent {
		return 0, nil
	}
	cache, err := s.table.Pointer(s.l.Cache)
	if err != nil {
		return 0, err
	}
	free, err := s.table.Uint32(cache + arch.Addr(s.l.Free))
	if err != nil || free == 0 || free > largestSyncIndex {
		return 0, err
	}
	return int(free), nil
}

// entries reads the sync table up to the first entry that has never been used, and passes the used entries to take, a
// part at a time, until take returns false. all: the read reached the never-used entry.
func (s *Store) entries(take func([]entry) bool) (all bool, err error) {
	if s.ahead != nil {
		return s.aheadEntries(take)
	}
	table, err := s.table.Pointer(s.l.Table)
	if err != nil {
		return false, err
	}
	end, err := s.end()
	if err != nil {
		return false, err
	}
	size := int(s.l.Entry)
	buf := make([]byte, chunk*size)
	list := make([]entry, 0, chunk)
	for index := 1; index < maxEntries; {
		if index == end {
			return take(list), nil
		}
		b := buf
		if end != 0 {
			b = buf[:min(len(buf), (end-index)*size)]
		}
		at := table + arch.Addr(index*size)
		if s.table.ReadMemory(b, at) != nil {
			b = buf[:size] // near the end of the memory
			if s.table.ReadMemory(b, at) != nil {
				take(list)
				return false, nil
			}
		}
		for ; len(b) >= size; b = b[size:] {
			e := entry{
				block:  arch.Addr(binary.LittleEndian.Uint64(b[s.l.Block:])),
				object: arch.Addr(binary.LittleEndian.Uint64(b[s.l.Object:])), index: index,
			}
			if index++; end == 0 && e.block == 0 && e.object == 0 {
				return take(list), nil
			}
			if e.block != 0 && e.object&entryFree == 0 && e.object != 0 {
				list = append(list, e)
			}
			if len(list) == chunk {
				if !take(list) {
					return false, nil
				}
				list = list[:0]
			}
		}
	}
	take(list)
	return false, nil
}
