package thread

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Exception is the state of the newest exception in flight on a thread.
type Exception struct {
	// Unwinding: a handler has been found, and the stack up to the handler is being unwound (the second pass).
	Unwinding bool
	// InHandler: managed code of an exception handler has been entered.
	InHandler bool
	// The exception has unwound the frames with a stack pointer in [Low, High). Their memory is still on the stack,
	// at higher addresses than the dispatcher's frames. Both are 0 where nothing has been unwound.
	Low, High arch.Addr
}

// exLayout is the layout of ExInfo (src/coreclr/vm/exinfo.h, struct ExInfo), in bytes. The word before the flags
// tells whether a managed handler has been entered (m_EHClauseInfo.m_fManagedCodeEntered).
type exLayout struct {
	Flags uint32 `clr:"ExceptionInfo.ExceptionFlags,optional"`
	Low   uint32 `clr:"ExceptionInfo.StackLowBound,optional"`
	High  uint32 `clr:"ExceptionInfo.StackHighBound,optional"`
	Pass  uint32 `clr:"ExceptionInfo.PassNumber,optional"`
}

const (
	exEntered    = 4   // before the flags
	exFlagUnwind = 0x4 // ExceptionFlags::Ex_UnwindHasStarted
)

// known reports whether all fields have been found.
func (l *exLayout) known() bool {
	return !slices.Contains([]uint32{l.Flags, l.Low, l.High, l.Pass}, contract.Absent)
}

// Exception reads the state of the exception in flight on t; false: there is none, or the state cannot be understood.
func (s *Store) Exception(t *Thread, stack *target.Stack) (Exception, bool) {
	if t.Exception == 0 {
		return Exception{}, false
	}
	if s.trackers != never {
		if e, ok := s.trackedException(t, stack); ok || s.trackers == always {
			return e, ok
		}
	}
	return s.stackedException(t, stack)
}

// stackedException reads the state of the exception in flight on t from its ExInfo,
// which is on the stack. The state is accepted only if it is consistent: the pass is
// stored twice, as a number and as a flag.
func (s *Store) stackedException(t *Thread, stack *target.Stack) (Exception, bool) {
	if !s.ex.known() {
		return Exception{}, false
	}
	flags, ok1 := stack.Uint64(t.Exception + arch.Addr(s.ex.Flags) - exEntered)
	low, ok2 := stack.Uint64(t.Exception + arch.Addr(s.ex.Low))
	high, ok3 := stack.Uint64(t.Exception + arch.Addr(s.ex.High))
	pass, ok4 := stack.Uint64(t.Exception + arch.Addr(s.ex.Pass))
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return Exception{}, false
	}
	entered, unwinding := uint32(flags), flags>>32&exFlagUnwind != 0
	if n := uint8(pass); entered > 1 || n != 1 && n != 2 || unwinding != (n == 2) {
		return Exception{}, false
	}
	e := Exception{Unwinding: unwinding, InHandler: entered != 0}
	if unwinding && uint64(t.Exception) < low && low < high &&
		stack.Contains(arch.Addr(low)) && stack.Contains(arch.Addr(high)) {
		e.Low, e.High = arch.Addr(low), arch.Addr(high)
	}
	return e, true
}
