package lock

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// Bits of System.Threading.Lock._state (System.Private.CoreLib: Lock.cs). Only the first bit is fixed: the contract
// SyncBlock names the first bit.
const (
	lockLocked      = 1
	lockWaiterShift = 7
)

// The class of a Lock.
const coreLib, lockClass = "System.Private.CoreLib", "System.Threading.Lock"

// Lock returns the state of a System.Threading.Lock (.NET 9 and later).
func (s *Store) Lock(obj arch.Addr) (Monitor, error) {
	c, err := s.objects.Class(obj)
	if err != nil {
		return Monitor{}, err
	}
	return s.lockOf(obj, c)
}

// lockOf is Lock with the class of the object. Where monitors are managed, Owner is a managed thread id, too.
func (s *Store) lockOf(obj arch.Addr, c *object.Class) (m Monitor, err error) {
	var owner, state, often uint32
	for _, f := range []struct {
		name string
		to   *uint32
	}{{"_owningThreadId", &owner}, {"_state", &state}, {"_recursionCount", &often}} {
		if *f.to, err = s.objects.Uint32(obj, c, f.name); err != nil {
			return Monitor{}, fmt.Errorf("%s: %w", c.Display, err)
		}
	}
	m = Monitor{Object: obj, Owner: int(owner), ByManagedID: s.Managed(), Waiters: int(state >> lockWaiterShift)}
	held := state&lockLocked != 0
	if held != (owner != 0) || !held && often != 0 || owner>>31 != 0 || often > maxRecursion {
		return Monitor{}, ErrChanging
	}
	if m.Owner != 0 {
		m.Recursion = int(often) + 1
	}
	return m, nil
}
