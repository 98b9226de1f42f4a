package thread

import (
	"encoding/binary"
	"unicode/utf16"

	"clrsnap/internal/arch"
)

// The native view of System.Threading.Thread (src/coreclr/vm/object.h, class
// ThreadBaseObject; CoreLib's layout is checked against it when the runtime is
// built): four references after the MethodTable pointer, the third of them the
// name, then the address of the Thread object, then two 32-bit numbers, the
// second of them the managed id.
const (
	managedName     = 24
	managedInternal = 40
	managedID       = 52

	maxName = 256 // UTF-16 units
)

// Name returns the managed name of a thread, and false where it has none. The
// managed heap moves while it is read, so nothing is believed that the object
// does not confirm: it must point back at the Thread and repeat its id.
func (s *Store) Name(t *Thread) (string, bool) {
	if t.Exposed == 0 {
		return "", false
	}
	obj, err := s.mem.Pointer(t.Exposed)
	if err != nil || obj == 0 {
		return "", false
	}
	back, err := s.mem.Pointer(obj + managedInternal)
	if err != nil || back != t.Address {
		return "", false
	}
	if id, err := s.mem.Uint32(obj + managedID); err != nil || int(id) != t.ManagedID {
		return "", false
	}
	str, err := s.mem.Pointer(obj + managedName)
	if err != nil || str == 0 {
		return "", false
	}
	return s.str(str)
}

func (s *Store) str(obj arch.Addr) (string, bool) {
	want, err := s.mem.Uint64(s.l.StringType)
	if err != nil {
		return "", false
	}
	mt, err := s.mem.Uint64(obj)
	if err != nil || mt&^s.l.Untag != want {
		return "", false
	}
	n, err := s.mem.Uint32(obj + arch.Addr(s.l.StringLength))
	if err != nil || n == 0 || n > 1<<20 {
		return "", false
	}
	b, err := s.mem.Bytes(obj+arch.Addr(s.l.StringChars), int(min(n, maxName))*2)
	if err != nil {
		return "", false
	}
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(u)), true
}
