package lock

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Blocking is the monitor that a thread is blocked on in native code, from the thread's own record
// (src/coreclr/vm/threaddebugblockinginfo.h).
type Blocking struct {
	Lock    arch.Addr // the AwareLock: see Store.At
	Wait    bool      // in Monitor.Wait; else the thread wants to enter
	Timeout int32     // in ms; -1: for ever
}

// An item on the blocked thread's stack: the AwareLock, the AppDomain, the reason, the timeout, the next item.
const (
	itemFor  = 16 // four bytes; the timeout is in the next four bytes
	itemNext = 24

	forEnter = 0
	forWait  = 1
)

// BlockingRange returns the memory that Blocked needs. The caller must copy the memory at the same moment as the
// stack of the thread. thread is the address of the thread's Thread object. false: the runtime has no records of
// blocked threads.
func (s *Store) BlockingRange(thread arch.Addr) (r target.Range, ok bool) {
	return target.Range{Addr: thread + arch.Addr(s.l.Blocking), Len: 8}, !s.Managed()
}

// Blocked returns the monitor that a thread is blocked on. The stack is a copy of the thread's stack, with
// BlockingRange. false: the thread is not blocked on a monitor, or the runtime does not record such threads (see
// Managed).
func (s *Store) Blocked(thread arch.Addr, stack *target.Stack) (b Blocking, ok bool) {
	if s.Managed() {
		return b, false
	}
	item, ok := stack.Uint64(thread + arch.Addr(s.l.Blocking))
	at := arch.Addr(item)
	if !ok || at%8 != 0 || !stack.Contains(at) {
		return b, false
	}
	lock, ok1 := stack.Uint64(at)
	what, ok2 := stack.Uint64(at + itemFor)
	next, ok3 := stack.Uint64(at + itemNext)
	if !ok1 || !ok2 || !ok3 || lock == 0 || next != 0 && arch.Addr(next) <= at {
		return b, false
	}
	b = Blocking{Lock: arch.Addr(lock), Wait: uint32(what) == forWait, Timeout: int32(what >> 32)}
	return b, (b.Wait || uint32(what) == forEnter) && b.Timeout >= -1
}
