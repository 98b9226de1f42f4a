package thread

import (
	"encoding/binary"
	"unicode/utf16"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// The native view of System.Threading.Thread (src/coreclr/vm/object.h, class ThreadBaseObject; the build of the
// runtime checks CoreLib's layout against the class): four references after the MethodTable pointer, the third of
// them the name, in .NET 11 two more references for waiting; then the address of the Thread object, then two 32-bit
// numbers, the second of them the managed id.
const (
	managedName     = 24
	managedInternal = 40 // after the four references
	managedExtra    = 16 // the two references of .NET 11
	managedID       = 12 // after the address

	maxName = 256 // UTF-16 units
)

// Name returns the managed name of a thread, "" if there is none, and whether the name could be read. Managed objects
// can move during the read, so Name checks the Thread object: it must point back at the Thread and repeat the
// Thread's id.
func (s *Store) Name(t *Thread) (name string, known bool) {
	if s.ahead != nil {
		return s.nameAhead(t)
	}
	if t.Exposed == 0 {
		return "", true
	}
	obj, err := s.mem.Pointer(t.Exposed)
	if err != nil || obj == 0 {
		return "", err == nil
	}
	if exposes, err := s.exposes(obj, t); err != nil || !exposes {
		return "", false
	}
	str, err := s.mem.Pointer(obj + managedName)
	if err != nil || str == 0 {
		return "", err == nil
	}
	return s.str(str, maxName)
}

// Object returns the address of the managed Thread object of t; 0: there is none, or the address cannot be read.
func (s *Store) Object(t *Thread) arch.Addr {
	obj, err := s.ObjectIn(s.mem, t)
	if err != nil {
		return 0
	}
	return obj
}

// ObjectIn returns the address of the managed Thread object of t, according to mem; 0: there is none.
func (s *Store) ObjectIn(mem target.Memory, t *Thread) (arch.Addr, error) {
	switch r := target.NewReader(mem); {
	case s.ahead != nil:
		return s.objectAhead(r, t)
	case t.Exposed == 0:
		return 0, nil
	default:
		return r.Pointer(t.Exposed)
	}
}

// Confirmed reports whether t refers to a managed Thread object, and whether the object refers back to t. A thread
// has a handle before the managed object exists. An error is why the handle or the object cannot be read.
func (s *Store) Confirmed(t *Thread) (refers, confirmed bool, err error) {
	if t.Exposed == 0 {
		return false, false, nil
	}
	obj, err := s.mem.Pointer(t.Exposed)
	if err != nil || obj == 0 {
		return err != nil, false, err
	}
	confirmed, err = s.exposes(obj, t)
	return true, confirmed, err
}

// exposes reports whether obj is the managed Thread object of t.
func (s *Store) exposes(obj arch.Addr, t *Thread) (bool, error) {
	for off := arch.Addr(managedInternal); off <= managedInternal+managedExtra; off += 8 {
		back, err := s.mem.Pointer(obj + off)
		if err != nil {
			return false, err
		}
		if back == t.Address {
			id, err := s.mem.Uint32(obj + off + managedID)
			return err == nil && int(id) == t.ManagedID, err
		}
	}
	return false, nil
}

// str reads a managed string, or the string's first most UTF-16 units.
func (s *Store) str(obj arch.Addr, most uint32) (string, bool) {
	text, _, ok := s.text(obj, most)
	return text, ok
}

// text is str, and reports whether the string is longer.
func (s *Store) text(obj arch.Addr, most uint32) (text string, cut, ok bool) {
	want := s.StringType()
	mt, err := s.mem.Uint64(obj)
	if err != nil || want == 0 || arch.Addr(mt&^s.l.Untag) != want {
		return "", false, false
	}
	n, err := s.mem.Uint32(obj + arch.Addr(s.l.StringLength))
	if err != nil || n > maxString {
		return "", false, false
	}
	b, err := s.mem.Bytes(obj+arch.Addr(s.l.StringChars), int(min(n, most))*2)
	if err != nil {
		return "", false, false
	}
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(u)), n > most, true
}

// maxString is the greatest length of a string, in UTF-16 units (src/coreclr/vm/object.h, CORINFO_String_MaxLength).
const maxString = 0x3fff_ffdf
