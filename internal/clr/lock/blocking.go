package lock

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Blocking is what a thread that is blocked in native code says about the monitor that it is blocked on
// (src/coreclr/vm/threaddebugblockinginfo.h).
type Blocking struct {
	Lock    arch.Addr // the AwareLock: see Store.At
	Wait    bool      // in Monitor.Wait; else it wants to enter
	Timeout int32     // in ms; -1: for ever
}

// An item on the blocked thread's stack: the AwareLock, the AppDomain, what for, the timeout, the next item.
const (
	itemFor  = 16 // four bytes, and the timeout in the four that follow
	itemNext = 24

	forEnter = 0
	forWait  = 1
)

// BlockingRange is the memory to copy at the same moment as the stack of a thread, whose Thread object is at
// an address: Blocked needs it. false: the runtime has nothing of that.
func (s *Store) BlockingRange(thread arch.Addr) (r target.Range, ok bool) {
	return target.Range{Addr: thread + arch.Addr(s.l.Blocking), Len: 8}, !s.Managed()
}

// Blocked returns what the monitor is that a thread is blocked on. The stack is the copy of the thread's, with
// BlockingRange in it. false: it is blocked on none, or the runtime does not say so (see Managed).
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
