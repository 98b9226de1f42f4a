package lock

import (
	"encoding/binary"
	"fmt"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// From .NET 11 on the monitor is managed code: a SyncBlock has either the bits of a thin lock, or a handle of a
// System.Threading.Lock that threads enter in place of the object. Owners are managed thread ids. The threads in
// Monitor.Wait are not counted here: the Lock's Condition has them (Condition.cs).
//
// Sources (dotnet/runtime, development branch of .NET 11): docs/design/datacontracts/SyncBlock.md, version c1;
// src/coreclr/vm/syncblk.cpp (SyncBlock::GetOrCreateLock, TryGetLockInfo); System.Private.CoreLib: Monitor.cs,
// Lock.cs.

// managedLayout is the layout of SyncBlocks with managed monitors.
type managedLayout struct {
	Lock           uint32 `clr:"SyncBlock.Lock"`     // a handle
	Thin           uint32 `clr:"SyncBlock.ThinLock"` // four bytes
	Thread         uint64 `global:"SyncBlockMaskLockThreadId"`
	Recursion      uint64 `global:"SyncBlockMaskLockRecursionLevel"`
	RecursionShift uint64 `global:"SyncBlockRecursionLevelShift"`
}

// bindManaged binds the layout of managed monitors.
func (s *Store) bindManaged(d *contract.Descriptor) error {
	s.m = &managedLayout{}
	if err := d.Bind(s.m); err != nil {
		return err
	}
	if s.m.Lock > blockLen-8 || s.m.Thin > blockLen-4 || s.m.RecursionShift > 31 || s.m.Thread == 0 {
		return fmt.Errorf("%w: a monitor at %d and %d of a sync block", contract.ErrFormat, s.m.Lock, s.m.Thin)
	}
	return nil
}

// Managed reports whether the runtime's monitor is managed code (.NET 11). If so, a monitor with waiters is a
// System.Threading.Lock, and threads have no Blocking records.
func (s *Store) Managed() bool { return s.m != nil || s.ahead != nil }

// managed reads the monitor of an object's SyncBlock.
func (s *Store) managed(block, obj arch.Addr) (Monitor, error) {
	b, err := s.mem.Bytes(block, blockLen)
	if err != nil {
		return Monitor{}, err
	}
	m, err := s.parseManaged(b)
	m.Object, m.Block = obj, block
	return m, err
}

// parseManaged decodes the first blockLen bytes of a SyncBlock, and reads the SyncBlock's Lock.
func (s *Store) parseManaged(b []byte) (m Monitor, err error) {
	handle := arch.Addr(binary.LittleEndian.Uint64(b[s.m.Lock:]))
	if handle == 0 {
		bits := uint64(binary.LittleEndian.Uint32(b[s.m.Thin:]))
		m = Monitor{ByManagedID: true, Owner: int(bits & s.m.Thread)}
		if m.Owner != 0 {
			m.Recursion = int(bits&s.m.Recursion>>s.m.RecursionShift) + 1
		}
		return m, nil
	}
	lock, err := s.mem.Pointer(handle)
	if err != nil {
		return m, err
	}
	c, err := s.objects.Class(lock)
	if err != nil {
		return m, err
	}
	if !c.Is(coreLib, lockClass) {
		return m, ErrChanging // the handle belongs to another object by now
	}
	m, err = s.lockOf(lock, c)
	m.Lock = lock
	return m, err
}

// monitorIndex leads from Locks to the objects with the Lock as monitor, as of some moment.
type monitorIndex struct {
	objects map[arch.Addr]arch.Addr
	made    time.Time
	took    time.Duration
}

// OfLock returns the monitor of a System.Threading.Lock; false: the sync table, as far as searched, has no such
// monitor. The searches take at most half of the time.
func (s *Store) OfLock(lock arch.Addr) (m Monitor, ok bool, err error) {
	if !s.Managed() {
		return m, false, nil
	}
	if obj, found := s.index.objects[lock]; found {
		if m, err := s.Of(obj); err == nil && m.Lock == lock {
			return m, true, nil
		}
	}
	if s.index.objects != nil && time.Since(s.index.made) < s.index.took {
		return m, false, nil
	}
	if err := s.indexLocks(); err != nil {
		return m, false, err
	}
	obj, found := s.index.objects[lock]
	if !found {
		return m, false, nil
	}
	if m, err = s.Of(obj); err == nil && m.Lock != lock {
		err = ErrChanging
	}
	return m, err == nil, err
}

// indexLocks looks through the sync table. The results are checked on use.
func (s *Store) indexLocks() error {
	begin := time.Now()
	objects := map[arch.Addr]arch.Addr{}
	l := tableLook{s: s, buf: make([]byte, window)}
	_, err := s.entries(func(list []entry) bool {
		sortEntries(list)
		for _, e := range list {
			lock := e.lock
			if s.ahead == nil {
				if !plausible(e.block) {
					continue
				}
				var ok bool
				var err error
				if lock, _, ok, err = handled(s.table, &l, &e); !ok {
					return false
				} else if err != nil {
					continue
				}
			}
			if lock == 0 {
				continue
			}
			if l.locks++; l.locks > maxLocks {
				return false
			}
			objects[lock] = e.object
		}
		return true
	})
	s.index = monitorIndex{objects, time.Now(), time.Since(begin)}
	return err
}
