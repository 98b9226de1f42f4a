package lock

import (
	"encoding/binary"
	"time"

	"clrsnap/internal/arch"
)

// The runtime's events identify a System.Threading.Lock by the handle of the AutoResetEvent that its waiters wait for.
// No other Lock has the same, and it stays the same while Locks move. From .NET 11 on monitors are Locks, so the
// events do not say which object is locked: the sync table does. Once somebody has waited for a pulse, the event of
// such a Lock belongs to its Condition.
//
// Sources (System.Private.CoreLib): Lock.cs (LockIdForEvents; _waitEvent, from .NET 11 on _waitEventOrCondition),
// Condition.cs, WaitHandle.cs, SafeHandle.cs.

const (
	conditionClass  = "System.Threading.Condition"
	waitHandleClass = "System.Threading.WaitHandle"
	safeHandleClass = "System.Runtime.InteropServices.SafeHandle"
)

// EventOf returns the handle by which events identify a Lock; 0: nobody has waited for it yet.
func (s *Store) EventOf(lock arch.Addr) (uint64, error) {
	c, err := s.objects.Class(lock)
	if err != nil {
		return 0, err
	}
	if !c.Is(coreLib, lockClass) {
		return 0, ErrChanging
	}
	at, err := s.objects.Pointer(lock, c, "_waitEventOrCondition")
	if err != nil {
		at, err = s.objects.Pointer(lock, c, "_waitEvent")
	}
	if err != nil || at == 0 {
		return 0, err
	}
	if c, err = s.objects.Class(at); err != nil {
		return 0, err
	}
	if c.Is(coreLib, conditionClass) {
		if at, err = s.objects.Pointer(at, c, "_waitEvent"); err != nil || at == 0 {
			return 0, err
		}
		if c, err = s.objects.Class(at); err != nil {
			return 0, err
		}
	}
	if !c.Is(coreLib, waitHandleClass) {
		return 0, ErrChanging
	}
	if at, err = s.objects.Pointer(at, c, "_waitHandle"); err != nil || at == 0 {
		return 0, err
	}
	if c, err = s.objects.Class(at); err != nil {
		return 0, err
	}
	if !c.Is(coreLib, safeHandleClass) {
		return 0, ErrChanging
	}
	handle, err := s.objects.Pointer(at, c, "handle")
	return uint64(handle), err
}

// eventIndex leads from Locks and their events to the monitors that these are, by their entries of the sync table.
type eventIndex struct {
	entries map[uint64]int
	locks   map[arch.Addr]int
	handles map[arch.Addr]arch.Addr // of the Locks
	all     bool                    // it has all monitors that were waited for then
	made    time.Time
	took    time.Duration
}

// How often the sync table is looked through.
const (
	lookEvery     = 100 * time.Millisecond
	lookSoon      = time.Millisecond // where a Lock may not live any longer
	lookPart      = 10               // no more often than after so many times as long as it takes
	maxLockEvents = 1 << 15
)

// OfEvent returns the monitor whose Lock has an event; its Lock is where it is now. false: there is none that the last
// Look has found.
func (s *Store) OfEvent(id uint64) (m Monitor, ok bool) {
	if !s.Managed() || id == 0 {
		return m, false
	}
	return s.withEvent(s.events.entries[id], id)
}

// Due reports whether it is time to look through the sync table again. soon: it is wanted for a Lock that may not live
// any longer.
func (s *Store) Due(soon bool) bool {
	least := lookEvery
	if soon {
		least = lookSoon
	}
	return s.Managed() && (s.events.entries == nil || time.Since(s.events.made) > max(least, lookPart*s.events.took))
}

// Look looks through the sync table for OfEvent and Entered. all: it has found all monitors that there were, if then
// Unmoved says so, too.
func (s *Store) Look() (all bool) {
	s.indexEvents()
	return s.events.all
}

// Looked returns when the last Look began, and what it has returned.
func (s *Store) Looked() (begun time.Time, all bool) {
	return s.events.made.Add(-s.events.took), s.events.all
}

// Unmoved reports whether all Locks are where the last Look has found them: what it has read of them was theirs.
func (s *Store) Unmoved() bool {
	for handle, lock := range s.events.handles {
		if at, err := s.mem.Pointer(handle); err != nil || at != lock {
			return false
		}
	}
	return true
}

// Entered returns the monitor that is a Lock; false: it is none that the last Look has found, or it was elsewhere then.
func (s *Store) Entered(lock arch.Addr) (m Monitor, ok bool) {
	block, obj, err := s.entry(s.events.locks[lock])
	if err != nil {
		return m, false
	}
	if at, err := s.lockIn(block); err != nil || at != lock || !s.isAt(obj, s.events.locks[lock]) {
		return m, false
	}
	return Monitor{Object: obj, Block: block, Lock: lock}, true
}

// isAt reports whether there is an object at an address whose word has the number of an entry of the sync table.
func (s *Store) isAt(obj arch.Addr, index int) bool {
	word, err := s.objects.Header(obj)
	return err == nil && word&(wordHashOrIndex|wordHash) == wordHashOrIndex && int(word&indexMask) == index
}

// withEvent returns the monitor of an entry of the sync table, if its Lock has an event.
func (s *Store) withEvent(index int, id uint64) (m Monitor, ok bool) {
	block, obj, err := s.entry(index)
	if err != nil {
		return m, false
	}
	lock, err := s.lockIn(block)
	if err != nil || lock == 0 {
		return m, false
	}
	if of, err := s.EventOf(lock); err != nil || of != id || !s.isAt(obj, index) {
		return m, false
	}
	return Monitor{Object: obj, Block: block, Lock: lock}, true
}

// lockIn returns the Lock of a SyncBlock; 0: it has none.
func (s *Store) lockIn(block arch.Addr) (arch.Addr, error) {
	handle, err := s.mem.Pointer(block + arch.Addr(s.m.Lock))
	if err != nil || handle == 0 {
		return 0, err
	}
	return s.mem.Pointer(handle)
}

// indexEvents looks through the sync table. What it finds is checked when it is used.
func (s *Store) indexEvents() {
	begin := time.Now()
	index := eventIndex{entries: map[uint64]int{}, locks: map[arch.Addr]int{},
		handles: map[arch.Addr]arch.Addr{}, all: true}
	l := tableLook{s: s, buf: make([]byte, window)}
	whole, err := s.entries(func(list []entry) bool {
		sortEntries(list)
		for _, e := range list {
			var b []byte
			if plausible(e.block) {
				b = l.block(e.block)
			}
			if b == nil {
				index.all = false
				continue
			}
			handle := arch.Addr(binary.LittleEndian.Uint64(b[s.m.Lock:]))
			if handle == 0 {
				continue
			}
			if l.locks++; l.locks > maxLockEvents {
				return false
			}
			lock, err := s.mem.Pointer(handle)
			var id uint64
			if err == nil {
				index.locks[lock], index.handles[handle] = e.index, lock
				id, err = s.EventOf(lock)
			}
			if err != nil {
				index.all = false // it moves, or the block is another one's by now
			} else if id != 0 {
				index.entries[id] = e.index
			}
		}
		return true
	})
	index.all = index.all && whole && err == nil
	index.made, index.took = time.Now(), time.Since(begin)
	s.events = index
}
