package thread

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// versionTracker is the version of the contract Exception that stands for .NET 8. .NET 8 is older than the contract:
// the record of an exception in flight is an ExceptionTracker in the runtime's own memory, not an ExInfo on the
// stack.
const versionTracker contract.Version = "0"

// trackerUse says whether exceptions have trackers.
type trackerUse uint8

// .NET 9 has trackers only with its older exception handling (DOTNET_LegacyExceptionHandling=1): sometimes.
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

// size returns the number of bytes of a tracker to read.
func (l *trackerLayout) size() int {
	return int(max(l.Thread, l.Low, l.High, l.Flags, l.Entered)) + 8
}

// TrackerRange returns the memory to capture together with the thread whose Thread object is at an address: the
// tracker of the thread's exception, if there is a tracker. TrackerRange reads the present memory.
func (s *Store) TrackerRange(mem target.Memory, thread arch.Addr) (at arch.Addr, n int) {
	if s.trackers == never {
		return 0, 0
	}
	r := target.NewReader(mem)
	at, err := r.Pointer(thread + arch.Addr(s.l.Exception))
	if err != nil || at == 0 {
		return 0, 0
	}
	return at, s.tracker.size()
}

// Uncaptured reports whether the capture of t lacks the tracker of its exception. The capture does if the exception
// was thrown after TrackerRange. The tracker is not read later, because by then the tracker may not match the stack.
func (s *Store) Uncaptured(t *Thread, stack *target.Stack) bool {
	if s.trackers == never || t.Exception == 0 {
		return false
	}
	_, begin := stack.Uint64(t.Exception)
	_, end := stack.Uint64(t.Exception + arch.Addr(s.tracker.size()-8))
	return !begin || !end
}

// trackedException reads the state of the exception in flight on t from its tracker. The tracker must name the
// thread: a freed tracker names no thread, and other memory is unlikely to name the thread.
func (s *Store) trackedException(t *Thread, stack *target.Stack) (Exception, bool) {
	ok := true
	word := func(off uint32) uint64 {
		v, captured := stack.Uint64(t.Exception + arch.Addr(off))
		ok = ok && captured
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
