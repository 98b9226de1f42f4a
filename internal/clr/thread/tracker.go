package thread

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// versionTracker is the version of the contract Exception that stands for .NET 8,
// which is older than the contract: what the runtime knows of an exception in flight
// is an ExceptionTracker in its own memory, not an ExInfo on the stack.
const versionTracker contract.Version = "0"

// trackerUse says whether exceptions have trackers.
type trackerUse uint8

// .NET 9 has them if its older way of handling exceptions is asked for
// (DOTNET_LegacyExceptionHandling=1): sometimes.
const (
	never trackerUse = iota
	sometimes
	always
)

func (s *Store) bindTracker(d *contract.Descriptor) error {
	switch _, ok := d.Offset("ExceptionInfo", "Thread"); {
	case d.Contracts["Exception"] == versionTracker:
		s.trackers = always
	case ok:
		s.trackers = sometimes
	default:
		return nil
	}
	return d.Bind(&s.tracker)
}

// trackerLayout is the layout of an ExceptionTracker (exceptionhandling.h, class
// ExceptionTracker), in bytes.
type trackerLayout struct {
	Thread  uint32 `clr:"ExceptionInfo.Thread"`
	Low     uint32 `clr:"ExceptionInfo.StackLowBound"`
	High    uint32 `clr:"ExceptionInfo.StackHighBound"`
	Flags   uint32 `clr:"ExceptionInfo.ExceptionFlags"`
	Entered uint32 `clr:"ExceptionInfo.ManagedCodeEntered"`
}

// Beside returns what to capture in one breath with a thread whose Thread object is
// at an address: its exception's tracker, if it has one. mem is read as it is now.
func (s *Store) Beside(mem target.Memory, thread arch.Addr) (at arch.Addr, n int) {
	if s.trackers != always {
		return 0, 0
	}
	r := target.NewReader(mem)
	at, err := r.Pointer(thread + arch.Addr(s.l.Exception))
	if err != nil || at == 0 {
		return 0, 0
	}
	l := &s.tracker
	return at, int(max(l.Thread, l.Low, l.High, l.Flags, l.Entered)) + 8
}

// trackedException reads the state of the exception in flight on t from its
// tracker. If that was not captured, memory as it is now is read: of a thread that
// has gone on since, what is found may be younger than its stack. A tracker that has
// been freed names no thread.
func (s *Store) trackedException(t *Thread, stack *target.Stack) (Exception, bool) {
	ok := true
	word := func(off uint32) uint64 {
		at := t.Exception + arch.Addr(off)
		if stack.Contains(at) {
			if v, captured := stack.Uint64(at); captured {
				return v
			}
		}
		v, err := s.mem.Uint64(at)
		ok = ok && err == nil
		return v
	}
	l := &s.tracker
	thread, low, high := arch.Addr(word(l.Thread)), arch.Addr(word(l.Low)), arch.Addr(word(l.High))
	flags, entered := uint32(word(l.Flags)), uint32(word(l.Entered))
	if !ok || thread != t.Address || entered > 1 {
		return Exception{}, false
	}
	e := Exception{Unwinding: flags&exFlagUnwind != 0, InHandler: entered != 0}
	if e.Unwinding && low < high && stack.Contains(low) && stack.Contains(high) {
		e.Low, e.High = low, high
	}
	return e, true
}
