package lock

import (
	"encoding/binary"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// The runtime's events identify a System.Threading.Lock by the handle of the AutoResetEvent that the Lock's waiters
// wait for. No other Lock has the same handle, and the handle stays the same while Locks move. From .NET 11 on
// monitors are Locks, so the events do not name the locked object: the sync table does. Once a thread has waited for
// a pulse, the event of the Lock belongs to the Lock's Condition.
//
// Sources (System.Private.CoreLib): Lock.cs (LockIdForEvents; _waitEvent, from .NET 11 on _waitEventOrCondition),
// Condition.cs, WaitHandle.cs, SafeHandle.cs.

const (
	conditionClass  = "System.Threading.Condition"
	waitHandleClass = "System.Threading.WaitHandle"
	safeHandleClass = "System.Runtime.InteropServices.SafeHandle"
)

// EventOf returns the handle that identifies a Lock in events; 0: no thread has waited for the Lock yet.
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

// eventIndex leads from Locks and their events to monitors, by the monitors' entries in the sync table.
type eventIndex struct {
	entries map[uint64]int
	locks   map[arch.Addr]int
	handles map[arch.Addr]arch.Addr // of the Locks
	all     bool                    // the index has all monitors with waiters at the time
	made    time.Time
	took    time.Duration
}

// How often the store looks through the sync table.
const (
	lookEvery     = 100 * time.Millisecond
	lookSoon      = time.Millisecond // for a Lock that may end soon
	lookPart      = 10               // least wait between looks, in durations of a look
	maxLockEvents = 1 << 15
)

// OfEvent returns the monitor whose Lock has an event, with the Lock's present address; false: the last Look has
// found no such monitor.
func (s *Store) OfEvent(id uint64) (m Monitor, ok bool) {
	if !s.Managed() || id == 0 {
		return m, false
	}
	return s.withEvent(s.events.entries[id], id)
}

// Due reports whether the store should look through the sync table again. soon: the look is for a Lock that may end
// soon.
func (s *Store) Due(soon bool) bool {
	least := lookEvery
	if soon {
		least = lookSoon
	}
	return s.Managed() && (s.events.entries == nil || time.Since(s.events.made) > max(least, lookPart*s.events.took))
}

// Look looks through the sync table for OfEvent and Entered. all: Look has found all monitors of the time, if Unmoved
// then returns true.
func (s *Store) Look() (all bool) {
	s.indexEvents()
	return s.events.all
}

// Looked returns the beginning of the last Look, and Look's result.
func (s *Store) Looked() (begun time.Time, all bool) {
	return s.events.made.Add(-s.events.took), s.events.all
}

// Unmoved reports whether all Locks are at their addresses of the last Look. If so, Look has read the Locks' own
// memory.
func (s *Store) Unmoved() bool {
	for handle, lock := range s.events.handles {
		if at, err := s.mem.Pointer(handle); err != nil || at != lock {
			return false
		}
	}
	return true
}

// Entered returns the monitor of a Lock; false: the last Look has found no monitor of the Lock, or the Lock was
// elsewhere then.
func (s *Store) Entered(lock arch.Addr) (m Monitor, ok bool) {
	index := s.events.locks[lock]
	block, obj, err := s.entry(index)
	if err != nil {
		return m, false
	}
	if at, err := s.lockIn(block, index); err != nil || at != lock || !s.isAt(obj, index) {
		return m, false
	}
	return Monitor{Object: obj, Block: block, Lock: lock}, true
}

// isAt reports whether an address has an object whose word has the number of an entry of the sync table.
func (s *Store) isAt(obj arch.Addr, index int) bool {
	word, err := s.objects.Header(obj)
	return err == nil && word&(wordHashOrIndex|wordHash) == wordHashOrIndex && int(word&indexMask) == index
}

// withEvent returns the monitor of an entry of the sync table, if the monitor's Lock has the event id.
func (s *Store) withEvent(index int, id uint64) (m Monitor, ok bool) {
	block, obj, err := s.entry(index)
	if err != nil {
		return m, false
	}
	lock, err := s.lockIn(block, index)
	if err != nil || lock == 0 {
		return m, false
	}
	if of, err := s.EventOf(lock); err != nil || of != id || !s.isAt(obj, index) {
		return m, false
	}
	return Monitor{Object: obj, Block: block, Lock: lock}, true
}

// lockIn returns the Lock of a SyncBlock, or of an entry of the sync table of a native AOT program; 0: there is none.
func (s *Store) lockIn(block arch.Addr, index int) (arch.Addr, error) {
	if s.ahead != nil {
		e, err := s.aheadEntry(index)
		return e.lock, err
	}
	handle, err := s.mem.Pointer(block + arch.Addr(s.m.Lock))
	if err != nil || handle == 0 {
		return 0, err
	}
	return s.mem.Pointer(handle)
}

// handled returns the Lock of an entry's SyncBlock and the handle of the Lock; 0: there is none. false: the SyncBlock
// cannot be read.
func handled(mem *target.Reader, l *tableLook, e *entry) (lock, handle arch.Addr, ok bool, err error) {
	if !plausible(e.block) {
		return 0, 0, false, nil
	}
	b := l.block(e.block)
	if b == nil {
		return 0, 0, false, nil
	}
	if handle = arch.Addr(binary.LittleEndian.Uint64(b[l.s.m.Lock:])); handle == 0 {
		return 0, 0, true, nil
	}
	lock, err = mem.Pointer(handle)
	return lock, handle, true, err
}

// indexEvents looks through the sync table. The results are checked on use.
func (s *Store) indexEvents() {
	begin := time.Now()
	index := eventIndex{entries: map[uint64]int{}, locks: map[arch.Addr]int{},
		handles: map[arch.Addr]arch.Addr{}, all: true}
	l := tableLook{s: s, buf: make([]byte, window)}
	whole, err := s.entries(func(list []entry) bool {
		sortEntries(list)
		for _, e := range list {
			lock, handle, err := e.lock, arch.Addr(0), error(nil)
			if s.ahead == nil {
				var ok bool
				if lock, handle, ok, err = handled(s.mem, &l, &e); !ok {
					index.all = false
					continue
				}
			}
			if lock == 0 && err == nil {
				continue
			}
			if l.locks++; l.locks > maxLockEvents {
				return false
			}
			var id uint64
			if err == nil {
				if index.locks[lock] = e.index; handle != 0 {
					index.handles[handle] = lock
				}
				id, err = s.EventOf(lock)
			}
			if err != nil {
				index.all = false // the Lock moves, or the block belongs to another object by now
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
