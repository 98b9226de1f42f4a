package waits

import (
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/target"
)

const lockClass = "System.Threading.Lock"

// A thread that waits for a Lock has a record of the wait on the stack, for debuggers
// (System.Private.CoreLib: ThreadBlockingInfo.cs, .NET 9 and later): the address of a variable that
// holds the Lock, the kind of the object, and the timeout in ms.
const (
	infoKind        = 8
	infoOfLock      = 2 // ThreadBlockingInfo.ObjectKind.Lock
	infoOfCondition = 3 // ThreadBlockingInfo.ObjectKind.Condition: see managedmonitor.go
	infoMaxSlots    = 1 << 12
)

// lock explains a wait for a System.Threading.Lock.
func (e *explanation) lock() error {
	obj, timeout, ok := e.blockingInfo(infoOfLock, lockClass)
	if !ok {
		f, only := e.r.only(e.inFrames(false), func(f *found) bool { return f.class.Is(coreLib, lockClass) })
		if !only {
			return nil
		}
		obj = f.obj
	} else {
		e.w.Timeout = timeout
	}
	return e.lockAt(obj)
}

// lockAt explains a wait for the System.Threading.Lock at an address.
func (e *explanation) lockAt(obj arch.Addr) error {
	m, err := e.r.Managed.Locks.Lock(obj)
	if err != nil {
		return err
	}
	if m.Waiters == 0 {
		return lock.ErrChanging // nobody waits for the Lock
	}
	if err := e.is(obj); err != nil {
		return err
	}
	if e.w.Recursion, e.w.Waiters = m.Recursion, m.Waiters; m.Owner != 0 {
		e.w.Owner = e.r.owner(&m)
	}
	e.w.Lock, err = e.r.Managed.Locks.EventOf(obj)
	return err
}

// blockingInfo finds the record of the wait in the frames of the primitive: a record of a kind, for
// an object of a class of the framework.
func (e *explanation) blockingInfo(kind uint32, class string) (obj arch.Addr, most time.Duration, ok bool) {
	return e.r.blockingInfo(e.s.Stack, arch.Addr(e.s.Frames[0].SP), frameAt(e.s, e.p.outer+1), kind, class)
}

// blockingInfo finds the record of a wait in a part of a stack: a record of a kind, for an object
// of a class. A record of an earlier wait may be left there: ok is false if there are records of
// several objects, and the timeout is 0 if the records contradict each other.
func (r *Reader) blockingInfo(stack *target.Stack, from, to arch.Addr, kind uint32, of string) (
	obj arch.Addr, most time.Duration, ok bool,
) {
	for n := 0; from+16 <= to && n < infoMaxSlots; from, n = from+8, n+1 {
		slot, ok1 := stack.Uint64(from)
		what, ok2 := stack.Uint64(from + infoKind)
		if !ok1 || !ok2 || uint32(what) != kind || !stack.Contains(arch.Addr(slot)) {
			continue
		}
		at, ok3 := stack.Uint64(arch.Addr(slot))
		if !ok3 {
			continue
		}
		if c, err := r.Managed.Objects.Class(arch.Addr(at)); err != nil || !c.Is(coreLib, of) {
			continue
		}
		ms := timeout(int32(what >> 32))
		switch {
		case !ok:
			obj, most, ok = arch.Addr(at), ms, true
		case obj != arch.Addr(at):
			return 0, 0, false
		case most != ms:
			most = 0
		}
	}
	return obj, most, ok
}
