package thread

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
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
	Trace      uint32 `clr:"Exception._stackTrace,optional"`
	BaseSize   uint32 `clr:"MethodTable.BaseSize,optional"`
	Parent     uint32 `clr:"MethodTable.ParentMethodTable,optional"`
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

// Base returns the MethodTable of the class that another one derives from; 0: there is none, or it
// cannot be read.
func (s *Store) Base(class arch.Addr) arch.Addr {
	if s.thrown.Parent == contract.Absent {
		return 0
	}
	base, err := s.mem.Pointer(class + arch.Addr(s.thrown.Parent))
	if err != nil {
		return 0
	}
	return base
}

// OwnString reads the string that an object has in the first field which a class of its adds to
// those of its base: the fields of a class lie behind those of its base, and references are the
// first of them (src/coreclr/vm/methodtablebuilder.cpp). It is false if there is none.
func (s *Store) OwnString(obj, class arch.Addr) (string, bool) {
	base := s.Base(class)
	if base == 0 || s.thrown.BaseSize == contract.Absent {
		return "", false
	}
	size, err := s.mem.Uint32(base + arch.Addr(s.thrown.BaseSize))
	if err != nil || size < minObject || size > maxObject {
		return "", false
	}
	text, err := s.mem.Pointer(obj + arch.Addr(size-objectHeader))
	if err != nil || text == 0 {
		return "", false
	}
	return s.str(text, maxMessage)
}

// The size of an object (MethodTable.BaseSize) counts the header in front of it
// (src/coreclr/vm/methodtable.h, object.h).
const (
	objectHeader = 8
	minObject    = 24
	maxObject    = 1 << 12 // of an exception's base class; they have some 130
)

// Strings returns the different strings that the words of a piece of memory refer to: by their
// objects, and by their first characters, as native code does that a string was passed to.
func (s *Store) Strings(from, to arch.Addr) (objects, chars []string) {
	to = min(to, from+maxScanned)
	add := func(all *[]string, obj arch.Addr) {
		if text, ok := s.str(obj, maxMessage); ok && !slices.Contains(*all, text) && len(*all) < maxStrings {
			*all = append(*all, text)
		}
	}
	first := arch.Addr(s.l.StringChars)
	for ; from < to; from += 8 {
		word, err := s.mem.Pointer(from)
		switch {
		case err != nil || word < first:
		case word%8 == first%8:
			add(&chars, word-first)
		case word%8 == 0:
			add(&objects, word)
		}
	}
	return objects, chars
}

const (
	maxScanned = 64 << 10
	maxStrings = 16
)
