package target

import (
	"encoding/binary"

	"clrsnap/internal/arch"
)

// Region is a copied piece of a target's memory.
type Region struct {
	Base arch.Addr
	Data []byte
}

// Stack is the part of a thread's stack that an unwinder may read: the pieces that were copied
// while the thread stood still. A running thread changes its stack, so memory outside the copies
// is read from the target only if Live is set: the thread is then still stopped (or can never run
// again).
type Stack struct {
	Region          // the piece around the stack pointer
	Extra  []Region // further pieces, for example the ordinary stack below a signal stack
	Live   *Reader  // nil: only the copies may be read

	// Miss is the last unreadable address. The owner of the capture can then copy that piece as
	// well, and try again.
	Miss arch.Addr
}

// Uint64 reads the 8 bytes at addr and reports whether they were readable.
func (s *Stack) Uint64(addr arch.Addr) (uint64, bool) {
	if o := uint64(addr - s.Base); len(s.Data) >= 8 && o <= uint64(len(s.Data)-8) {
		return binary.LittleEndian.Uint64(s.Data[o:]), true
	}
	return s.slow(addr)
}

func (s *Stack) slow(addr arch.Addr) (uint64, bool) {
	for i := range s.Extra {
		e := &s.Extra[i]
		if o := uint64(addr - e.Base); len(e.Data) >= 8 && o <= uint64(len(e.Data)-8) {
			return binary.LittleEndian.Uint64(e.Data[o:]), true
		}
	}
	if s.Live != nil {
		if v, err := s.Live.Uint64(addr); err == nil {
			return v, true
		}
	}
	s.Miss = addr
	return 0, false
}

// Contains reports whether addr lies in a copy.
func (s *Stack) Contains(addr arch.Addr) bool {
	if uint64(addr-s.Base) < uint64(len(s.Data)) {
		return true
	}
	for i := range s.Extra {
		if uint64(addr-s.Extra[i].Base) < uint64(len(s.Extra[i].Data)) {
			return true
		}
	}
	return false
}
