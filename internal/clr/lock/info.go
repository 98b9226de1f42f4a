package lock

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Info is what a thread that waits for a Lock or a Condition says of that (System.Private.CoreLib:
// ThreadBlockingInfo.cs, .NET 9 and later): its newest record is on its stack, and a static field of the thread leads
// there. From .NET 11 on waits for monitors are among these.
type Info struct {
	Object    arch.Addr // the Lock, or the Condition, when the stack was copied
	Condition bool
	Timeout   int32     // in ms; -1: for ever
	At        arch.Addr // where the record is
	Slot      arch.Addr // where the stack has the object
}

const (
	infoClass   = "System.Threading.ThreadBlockingInfo"
	infoField   = "t_first"
	infoSlot    = 0
	infoKind    = 8 // four bytes, and the timeout in the four that follow
	ofLock      = 2 // ThreadBlockingInfo.ObjectKind.Lock
	ofCondition = 3
)

// InfoRange is the memory to copy at the same moment as the stack of a thread, which has its ThreadLocalData at an
// address: Info needs it. in is a MethodTable of CoreLib. false: it is not known where that is, or the runtime's
// monitors are native, and Blocked says more.
func (s *Store) InfoRange(data, in arch.Addr) (r target.Range, ok bool) {
	if !s.Managed() || data == 0 {
		return r, false
	}
	if s.infoAt == 0 {
		var err error
		if s.infoAt, err = s.objects.Direct(in, infoClass, infoField); err != nil || s.infoAt > maxInfoAt {
			s.infoAt = 0 // its class may be loaded later
			return r, false
		}
	}
	return target.Range{Addr: data + arch.Addr(s.infoAt), Len: 8}, true
}

const maxInfoAt = 1 << 12 // a ThreadLocalData has fewer bytes

// Info returns what a thread waits for, from the copy of its stack with InfoRange in it; false: for none of these.
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

// LockOf returns the Lock that a thread waits for, or to whose Condition it listens.
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
