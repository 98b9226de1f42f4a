package core

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// OwnID is a thread's id in the thread's own PID namespace. gcore writes the ids of gdb's
// namespace; the C library keeps the thread's own id.
func (c *Core) OwnID(tid int) int {
	if c.notes.writer != writerGCore {
		return tid
	}
	c.ownOnce.Do(func() { c.own = c.ownIDs() })
	if id, ok := c.own[tid]; ok {
		return id
	}
	return tid
}

// ownIDs finds the C library's place of thread ids. A place is accepted if every thread has an id
// there, and all ids differ.
func (c *Core) ownIDs() map[int]int {
	for _, place := range c.layout.ids {
		if ids, ok := c.idsAt(place); ok {
			return ids
		}
	}
	return nil
}

func (c *Core) idsAt(place arch.Addr) (map[int]int, bool) {
	const most = 1 << 22 // PID_MAX_LIMIT
	r := target.NewReader(c)
	ids, seen := map[int]int{}, map[uint32]bool{}
	for _, t := range c.notes.threads {
		id, err := r.Uint32(t.local + place)
		if err != nil || id == 0 || id > most || seen[id] {
			return nil, false
		}
		ids[t.TID], seen[id] = int(id), true
	}
	return ids, true
}
