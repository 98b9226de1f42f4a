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

// trackedException reads the state of the exception in flight on t from its
// tracker. That is memory as it is now: of a thread that has gone on since it was
// captured, what is found may be younger than its stack. A tracker that has been
// freed names no thread.
func (s *Store) trackedException(t *Thread, stack *target.Stack) (Exception, bool) {
	l := &s.tracker
	thread, err1 := s.mem.Pointer(t.Exception + arch.Addr(l.Thread))
	low, err2 := s.mem.Pointer(t.Exception + arch.Addr(l.Low))
	high, err3 := s.mem.Pointer(t.Exception + arch.Addr(l.High))
	flags, err4 := s.mem.Uint32(t.Exception + arch.Addr(l.Flags))
	entered, err5 := s.mem.Uint32(t.Exception + arch.Addr(l.Entered))
	for _, err := range [...]error{err1, err2, err3, err4, err5} {
		if err != nil {
			return Exception{}, false
		}
	}
	if thread != t.Address || entered > 1 {
		return Exception{}, false
	}
	e := Exception{Unwinding: flags&exFlagUnwind != 0, InHandler: entered != 0}
	if e.Unwinding && low < high && stack.Contains(low) && stack.Contains(high) {
		e.Low, e.High = low, high
	}
	return e, true
}
