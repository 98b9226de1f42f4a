package thread

import (
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// ExceptionObject is a managed exception.
type ExceptionObject struct {
	Type    arch.Addr // the MethodTable
	Message string    // at most maxMessage characters; empty: the type's default message
	Unread  bool      // there is a message, and it cannot be read
	Cut     bool      // Message is only the beginning
	HResult int32
	Inner   arch.Addr // the exception that led to the present exception; 0: none
	Remote  string    // stack trace as text, in front of the object's own: of another process, or restored
	Text    string    // stack trace as text, in place of the object's own: of an exception that was deserialized
}

// Bounds of an exception's texts, in UTF-16 units: of the message, and of the stack trace of another machine. maxName
// bounds the name of a parameter.
const (
	maxMessage = 1 << 15
	maxRemote  = 1 << 15
	maxParam   = 1 << 12
)

// maxNested bounds the exceptions that are in flight on one thread.
const maxNested = 16

// Exception objects of .NET (System.Private.CoreLib, Exception.CoreCLR.cs; the runtime's own view is
// src/coreclr/vm/object.h, class ExceptionObject).
type thrownLayout struct {
	LastThrown uint32 `clr:"Thread.LastThrownObject"`
	Message    uint32 `clr:"Exception._message"`
	Inner      uint32 `clr:"Exception._innerException"`
	HResult    uint32 `clr:"Exception._HResult"`
	Trace      uint32 `clr:"Exception._stackTrace,optional"`
	BaseSize   uint32 `clr:"MethodTable.BaseSize,optional"`
	Parent     uint32 `clr:"MethodTable.ParentMethodTable,optional"`
}

// LastException returns the exception object that a thread is handling, or the thread's last handled exception
// object; 0: there is none, or the object cannot be read. LastException reads the present memory, so the thread must
// not run.
func (s *Store) LastException(t *Thread) arch.Addr {
	if t.Exception != 0 {
		if obj := s.thrownObject(t.Exception + arch.Addr(s.l.ExObject)); obj != 0 {
			return obj
		}
	}
	return s.LastThrown(t)
}

// LastThrown returns the exception object that a thread has thrown last, in flight or not; 0: there is none, or the
// object cannot be read.
func (s *Store) LastThrown(t *Thread) arch.Addr {
	if s.ahead != nil {
		return 0 // not known
	}
	return s.object(t.Address + arch.Addr(s.thrown.LastThrown))
}

// FlightError is why the record of the newest exception in flight on a thread cannot be read; nil: there is none, or
// the record can be read.
func (s *Store) FlightError(t *Thread) error {
	if t.Exception == 0 {
		return nil
	}
	_, err := s.mem.Pointer(t.Exception + arch.Addr(s.l.ExObject))
	return err
}

// ThrownError is why LastThrown does not know the object; nil: the object is known, or there is none.
func (s *Store) ThrownError(t *Thread) error {
	if s.ahead != nil || t.Address == 0 {
		return nil
	}
	handle, err := s.mem.Pointer(t.Address + arch.Addr(s.thrown.LastThrown))
	if err == nil && handle != 0 {
		_, err = s.mem.Pointer(handle)
	}
	return err
}

// InFlight returns the exception objects in flight on a thread, the newest first. An older exception was being
// handled when the next exception was thrown. InFlight reads the present memory.
func (s *Store) InFlight(t *Thread) []arch.Addr {
	var out []arch.Addr
	at := t.Exception
	for range maxNested {
		if at == 0 {
			break
		}
		if obj := s.thrownObject(at + arch.Addr(s.l.ExObject)); obj != 0 && !slices.Contains(out, obj) {
			out = append(out, obj) // an exception thrown again is in flight twice
		}
		if s.l.ExPrevious == contract.Absent {
			break
		}
		var err error
		if at, err = s.mem.Pointer(at + arch.Addr(s.l.ExPrevious)); err != nil {
			break
		}
	}
	return out
}

// StillInFlight reports whether the newest exception in flight on a thread is still t.Exception.
func (s *Store) StillInFlight(t *Thread) bool {
	at, err := s.mem.Pointer(t.Address + arch.Addr(s.l.Exception))
	return err == nil && at == t.Exception
}

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

// object follows the handle at an address to the handle's object; 0: there is none.
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
		text, cut, ok := s.text(message, maxMessage)
		e.Message, e.Cut, e.Unread = text, cut, !ok
	}
	hr, err := s.mem.Uint32(obj + arch.Addr(s.thrown.HResult))
	if err != nil {
		return e, err
	}
	e.HResult = int32(hr)
	if e.Inner, err = s.mem.Pointer(obj + arch.Addr(s.thrown.Inner)); err != nil {
		return e, err
	}
	e.Remote, e.Text = s.traceText(obj, s.trace.Remote), s.traceText(obj, s.trace.Text)
	return e, nil
}

// traceText reads a field of an exception object with a stack trace as text; "": there is none.
func (s *Store) traceText(obj arch.Addr, field uint32) string {
	if field == contract.Absent {
		return ""
	}
	text, err := s.mem.Pointer(obj + arch.Addr(field))
	if err != nil || text == 0 {
		return ""
	}
	str, _ := s.str(text, maxRemote)
	return str
}

// Base returns the MethodTable of a class's base class; 0: there is none, or it cannot be read.
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

// OwnString reads the string that Own returns; false: there is none.
func (s *Store) OwnString(obj, class arch.Addr) (string, bool) {
	text := s.Own(obj, class)
	if text == 0 {
		return "", false
	}
	return s.str(text, maxParam)
}

// Own returns the object in the first field that class adds to the fields of its base class; 0: there is none. The
// fields of a class lie behind the fields of its base, and begin with the references
// (src/coreclr/vm/methodtablebuilder.cpp).
func (s *Store) Own(obj, class arch.Addr) arch.Addr {
	base := s.Base(class)
	if base == 0 || s.thrown.BaseSize == contract.Absent {
		return 0
	}
	size, err := s.mem.Uint32(base + arch.Addr(s.thrown.BaseSize))
	if err != nil || size < minObject || size > maxObject {
		return 0
	}
	own, err := s.mem.Pointer(obj + arch.Addr(size-objectHeader))
	if err != nil {
		return 0
	}
	return own
}

// The size of an object (MethodTable.BaseSize) counts the header in front of the object
// (src/coreclr/vm/methodtable.h, object.h).
const (
	objectHeader = 8
	minObject    = 24      // bytes
	maxObject    = 1 << 12 // of an exception's base class; some 130 bytes are usual
)

// Objects returns the different addresses of objects in a piece of memory. is decides by an object's MethodTable.
func (s *Store) Objects(from, to arch.Addr, is func(class arch.Addr) bool) []arch.Addr {
	to = min(to, from+maxScanned)
	var out []arch.Addr
	for ; from < to && len(out) < maxStrings; from += 8 {
		obj, err := s.mem.Pointer(from)
		if err != nil || obj == 0 || obj%8 != 0 || slices.Contains(out, obj) {
			continue
		}
		mt, err := s.mem.Uint64(obj)
		if class := arch.Addr(mt &^ s.l.Untag); err == nil && class != 0 && is(class) {
			out = append(out, obj)
		}
	}
	return out
}

// First returns the object in an object's first field, if the bases of the object's class have no fields.
func (s *Store) First(obj arch.Addr) arch.Addr {
	first, err := s.mem.Pointer(obj + objectHeader)
	if err != nil {
		return 0
	}
	return first
}

// Strings returns the different strings that the words of a piece of memory refer to: objects by the address of a
// string object, chars by the address of a string's first character, as in native code that a string was passed to.
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
