package thread

import (
	"clrsnap/internal/arch"
)

// ExceptionObject is a managed exception.
type ExceptionObject struct {
	Type    arch.Addr // its MethodTable
	Message string    // at most maxMessage characters; empty: the type's default message
	Unread  bool      // it has a message, which cannot be read
	HResult int32
	Inner   arch.Addr // the exception that led to it; 0: none
}

// maxMessage bounds an exception's message, in UTF-16 units.
const maxMessage = 1 << 12

// Exception objects of .NET (System.Private.CoreLib, Exception.CoreCLR.cs; the
// runtime's view of them is src/coreclr/vm/object.h, class ExceptionObject).
type thrownLayout struct {
	LastThrown uint32 `clr:"Thread.LastThrownObject"`
	Message    uint32 `clr:"Exception._message"`
	Inner      uint32 `clr:"Exception._innerException"`
	HResult    uint32 `clr:"Exception._HResult"`
}

// LastException returns the exception object that a thread is handling, or the last
// one that it handled; 0: there is none, or it cannot be read. It reads memory as it is
// now, so the thread must not run.
func (s *Store) LastException(t *Thread) arch.Addr {
	if t.Exception != 0 {
		if obj := s.thrownObject(t.Exception + arch.Addr(s.l.ExObject)); obj != 0 {
			return obj
		}
	}
	return s.object(t.Address + arch.Addr(s.thrown.LastThrown))
}

// thrownObject returns the object of an ExInfo's field at an address.
func (s *Store) thrownObject(at arch.Addr) arch.Addr {
	if !s.direct {
		return s.object(at)
	}
	obj, err := s.mem.Pointer(at)
	if err != nil {
		return 0
	}
	return obj
}

// object follows the handle at an address to its object; 0: there is none.
func (s *Store) object(at arch.Addr) arch.Addr {
	handle, err := s.mem.Pointer(at)
	if err != nil || handle == 0 {
		return 0
	}
	obj, err := s.mem.Pointer(handle)
	if err != nil {
		return 0
	}
	return obj
}

// ReadException reads an exception object.
func (s *Store) ReadException(obj arch.Addr) (ExceptionObject, error) {
	var e ExceptionObject
	mt, err := s.mem.Uint64(obj)
	if err != nil {
		return e, err
	}
	e.Type = arch.Addr(mt &^ s.l.Untag)
	message, err := s.mem.Pointer(obj + arch.Addr(s.thrown.Message))
	if err != nil {
		return e, err
	}
	if message != 0 {
		text, ok := s.str(message, maxMessage)
		e.Message, e.Unread = text, !ok
	}
	hr, err := s.mem.Uint32(obj + arch.Addr(s.thrown.HResult))
	if err != nil {
		return e, err
	}
	e.HResult = int32(hr)
	e.Inner, err = s.mem.Pointer(obj + arch.Addr(s.thrown.Inner))
	return e, err
}
