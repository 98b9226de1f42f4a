package types

import (
	"fmt"

	"clrsnap/internal/arch"
)

// maxParents bounds the base classes of a class.
const maxParents = 1 << 10

// Canonical returns the MethodTable that mt shares its code with, perhaps mt itself.
func (s *System) Canonical(mt arch.Addr) (arch.Addr, error) {
	canon, _, err := s.canonical(mt)
	return canon, err
}

// IsValueType reports whether h is the type handle of a struct, an enum or a primitive type.
func (s *System) IsValueType(h arch.Addr) (bool, error) {
	if h&typeDescTag != 0 {
		return false, nil
	}
	flags, err := s.mem.Uint32(h + arch.Addr(s.l.Flags))
	return flags&categoryMask == categoryValueType, err
}

// Ancestor returns the class among mt and its base classes that shares its code with canon; false: there is none.
func (s *System) Ancestor(mt, canon arch.Addr) (arch.Addr, bool, error) {
	for range maxParents {
		if err := s.Check(mt); err != nil {
			return 0, false, err
		}
		if c, err := s.Canonical(mt); err != nil || c == canon {
			return mt, err == nil, err
		}
		parent, err := s.mem.Pointer(mt + arch.Addr(s.l.Parent))
		if err != nil || parent == 0 {
			return 0, false, err
		}
		mt = parent
	}
	return 0, false, fmt.Errorf("%w: more than %d base classes of %v", ErrCorrupt, maxParents, mt)
}

// IsObject reports whether the instances of a MethodTable are objects with a MethodTable in the first word, and not
// values or interfaces.
func (s *System) IsObject(mt arch.Addr) (bool, error) {
	flags, err := s.mem.Uint32(mt + arch.Addr(s.l.Flags))
	return flags&categoryMask == 0, err
}
