package lock

import (
	"encoding/binary"
	"slices"

	"clrsnap/internal/arch"
)

// Bounds of a look through the sync table.
const (
	maxEntries  = 1 << 20
	chunk       = 1 << 12 // entries that are read at once
	window      = 1 << 16 // bytes of sync blocks that are read at once
	maxHeld     = 1 << 12
	unreadTries = 16 // blocks that cannot be read before the look ends
)

// Held returns the monitors with a SyncBlock that threads hold, in the order of their SyncBlocks' addresses.
// It looks through the whole table, but reads only as much of it as is bounded: all is false if there may be
// more. What it returns has not been checked like that of At and Of.
func (s *Store) Held() (held []Monitor, all bool, err error) {
	blocks, all, err := s.entries()
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(blocks, func(a, b entry) int {
		if a.block < b.block {
			return -1
		}
		return 1
	})
	buf, from, unread := make([]byte, window), arch.Addr(0), 0
	var have []byte
	for _, e := range blocks {
		if e.block < from || uint64(e.block-from)+blockLen > uint64(len(have)) {
			from, have = e.block, buf
			if s.mem.ReadMemory(have, from) != nil {
				have = buf[:blockLen] // near the end of its memory
				if s.mem.ReadMemory(have, from) != nil {
					if have, all = nil, false; unread == unreadTries {
						return held, false, nil
					}
					unread++
					continue
				}
			}
		}
		m, index, err := s.parse(have[e.block-from:][:blockLen])
		if err != nil || m.Owner == 0 || index != e.index {
			continue
		}
		if len(held) == maxHeld {
			return held, false, nil
		}
		m.Object = e.object
		held = append(held, m)
	}
	return held, all, nil
}

// entry is an entry of the sync table that is in use.
type entry struct {
	block, object arch.Addr
	index         int
}

// entries reads the sync table up to the first entry that has never been used.
func (s *Store) entries() (out []entry, all bool, err error) {
	table, err := s.mem.Pointer(s.l.Table)
	if err != nil {
		return nil, false, err
	}
	size := int(s.l.Entry)
	buf := make([]byte, chunk*size)
	for index := 1; index < maxEntries; {
		b := buf
		at := table + arch.Addr(index*size)
		if s.mem.ReadMemory(b, at) != nil {
			b = buf[:size] // near the end of its memory
			if s.mem.ReadMemory(b, at) != nil {
				return out, false, nil
			}
		}
		for ; len(b) >= size; b = b[size:] {
			e := entry{
				block:  arch.Addr(binary.LittleEndian.Uint64(b[s.l.Block:])),
				object: arch.Addr(binary.LittleEndian.Uint64(b[s.l.Object:])), index: index,
			}
			if index++; e.block == 0 && e.object == 0 {
				return out, true, nil
			}
			if e.block != 0 && e.object&entryFree == 0 && e.object != 0 {
				out = append(out, e)
			}
		}
	}
	return out, false, nil
}
