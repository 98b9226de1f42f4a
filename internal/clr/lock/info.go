package lock

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Info is the Lock or Condition that a thread waits for, from the thread's own record (System.Private.CoreLib:
// ThreadBlockingInfo.cs, .NET 9 and later). The newest record is on the thread's stack, and a static field of the
// thread leads to the record. From .NET 11 on, waits for monitors have records, too.
type Info struct {
	Object    arch.Addr // address of the Lock or Condition when the stack was copied
	Condition bool
	Timeout   int32     // in ms; -1: for ever
	At        arch.Addr // address of the record
	Slot      arch.Addr // address of the object's slot on the stack
}

const (
	infoClass   = "System.Threading.ThreadBlockingInfo"
	infoField   = "t_first"
	infoSlot    = 0
	infoKind    = 8 // four bytes; the timeout is in the next four bytes
	infoNext    = 16
	infoLen     = 24
	ofLock      = 2 // ThreadBlockingInfo.ObjectKind.Lock
	ofCondition = 3
)

// InfoRange returns the memory that Info needs. The caller must copy the memory at the same moment as the stack of
// the thread. data is the address of the thread's ThreadLocalData; in is a MethodTable of CoreLib. false: the place
// of the memory is not known, or the runtime's monitors are native, and Blocked tells more.
func (s *Store) InfoRange(data, in arch.Addr) (r target.Range, ok bool) {
	if !s.Managed() || data == 0 {
		return r, false
	}
	if s.infoAt == 0 {
		var err error
		if s.infoAt, err = s.objects.Direct(in, infoClass, infoField); err != nil || s.infoAt > maxInfoAt {
			s.infoAt = 0 // the class may be loaded later
			return r, false
		}
	}
	return target.Range{Addr: data + arch.Addr(s.infoAt), Len: 8}, true
}

const maxInfoAt = 1 << 12 // a ThreadLocalData has fewer bytes

// Info returns the Lock or Condition that a thread waits for, from the copy of the thread's stack with InfoRange;
// false: the thread waits for neither.
func (s *Store) Info(at arch.Addr, stack *target.Stack) (i Info, ok bool) {
	first, ok := stack.Uint64(at)
	if i.At = arch.Addr(first); !ok || first%8 != 0 || !stack.Contains(i.At) {
		return i, false
	}
	slot, ok1 := stack.Uint64(i.At + infoSlot)
	what, ok2 := stack.Uint64(i.At + infoKind)
	if i.Slot = arch.Addr(slot); !ok1 || !ok2 || !stack.Contains(i.Slot) {
		return i, false
	}
	obj, ok := stack.Uint64(i.Slot)
	i.Object, i.Condition, i.Timeout = arch.Addr(obj), uint32(what) == ofCondition, int32(what>>32)
	return i, ok && obj != 0 && (i.Condition || uint32(what) == ofLock) && i.Timeout >= -1
}

// LockOf returns the Lock that a thread waits for, or the Lock of the thread's Condition.
func (s *Store) LockOf(i *Info) (arch.Addr, error) {
	if !i.Condition {
		return i.Object, nil
	}
	c, err := s.objects.Class(i.Object)
	if err != nil {
		return 0, err
	}
	if !c.Is(coreLib, conditionClass) {
		return 0, ErrChanging
	}
	return s.objects.Pointer(i.Object, c, "_lock")
}
