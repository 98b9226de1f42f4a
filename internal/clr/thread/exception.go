package thread

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Exception is the state of the newest exception in flight on a thread.
type Exception struct {
	// Unwinding: a handler has been found, and the stack up to it is being
	// taken down (the second pass).
	Unwinding bool
	// InHandler: managed code of an exception handler has been entered.
	InHandler bool
	// The frames with a stack pointer in [Low, High) are no longer there: the
	// exception has unwound them, although their memory still is below the
	// dispatcher's. Both are 0 where nothing has been unwound.
	Low, High arch.Addr
}

// Layout of ExInfo (src/coreclr/vm/exinfo.h, struct ExInfo), in bytes. The data
// descriptor of .NET 10 names only the first two fields. The others were read
// off live processes, and are only believed where they agree with one another:
// the number of the pass is there twice, as a number and as a flag.
const (
	exPrevious   = 0
	exEntered    = 60  // m_EHClauseInfo.m_fManagedCodeEntered
	exFlags      = 64  // m_ExceptionFlags
	exRange      = 128 // m_ScannedStackRange: low and high bound
	exPass       = 185 // m_passNumber
	exFlagUnwind = 0x4 // ExceptionFlags::Ex_UnwindHasStarted
)

// Exception reads the state of the exception in flight on t, and false where
// there is none, or none that can be understood.
func (s *Store) Exception(t *Thread, stack *target.Stack) (Exception, bool) {
	if t.Exception == 0 || s.l.ExPrevious != exPrevious {
		return Exception{}, false
	}
	word := func(off arch.Addr) (uint64, bool) { return stack.Uint64(t.Exception + off) }
	var b [8]byte
	entered, ok1 := word(exEntered - 4)
	flags, ok2 := word(exFlags)
	low, ok3 := word(exRange)
	high, ok4 := word(exRange + 8)
	pass, ok5 := word(exPass - exPass%8)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return Exception{}, false
	}
	binary.LittleEndian.PutUint64(b[:], pass)
	unwinding := flags&exFlagUnwind != 0
	if n := b[exPass%8]; n != 1 && n != 2 || unwinding != (n == 2) {
		return Exception{}, false
	}
	e := Exception{Unwinding: unwinding, InHandler: entered>>32 != 0}
	if unwinding && uint64(t.Exception) < low && low < high && stack.Contains(arch.Addr(low)) && stack.Contains(arch.Addr(high)) {
		e.Low, e.High = arch.Addr(low), arch.Addr(high)
	}
	return e, true
}
