package types

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// Field is a field of a class, from the runtime's FieldDesc (src/coreclr/vm/field.h).
type Field struct {
	RID uint32 // row in the Field table of the class's module
	// Offset is in bytes. For an instance field, Offset counts from the start of the object, the MethodTable's
	// pointer included. For a static field that is a reference or Boxed, Offset counts from System.Statics. For any
	// other Local field, Offset counts from System.DirectStatics, if they are there.
	Offset uint32
	Type   uint8 // CorElementType: Reference tells references to objects
	Static bool
	Local  bool // a static field with a copy for each thread: Offset does not count from System.Statics
}

// elementClass is the element type (corhdr.h, CorElementType) of every kind of reference in the runtime's FieldDescs
// (src/coreclr/vm/field.cpp, FieldDesc::Init).
const (
	elementClass = 0x12
	elementValue = 0x11
)

// Reference reports whether the field holds a reference to an object.
func (f *Field) Reference() bool { return f.Type == elementClass }

// Boxed reports whether the field holds a struct. The struct of a static field is an object, and the field refers to
// the object.
func (f *Field) Boxed() bool { return f.Type == elementValue }

// Bits of a FieldDesc. .NET 8 keeps a part of the name's hash above 17 bits of the row, unless the row needs more
// bits (field.h, enum_packedMbLayout and m_requiresFullMbValue).
const (
	fieldRow     = 1<<24 - 1
	fieldPacked  = 1<<17 - 1
	fieldStatic  = 1 << 24
	fieldLocal   = 1 << 25
	fieldOffset  = 1<<27 - 1
	fieldType    = 27
	fieldLast    = fieldOffset - 6 // larger offsets are marks
	maxFields    = 1 << 12         // of one class
	objectHeader = 8               // the pointer to the MethodTable
)

// fieldLayout is the layout of FieldDescs. If the layout is not known, Fields returns an error.
type fieldLayout struct {
	List  uint32 `clr:"EEClass.FieldDescList,optional"`
	Size  uint32 `clr:"FieldDesc.!,optional"`
	Table uint32 `clr:"FieldDesc.MTOfEnclosingClass,optional"`
	Word1 uint32 `clr:"FieldDesc.DWord1,optional"`
	Word2 uint32 `clr:"FieldDesc.DWord2,optional"`
}

func (l *fieldLayout) known() bool {
	for _, v := range []uint32{l.List, l.Size, l.Table, l.Word1, l.Word2} {
		if v == contract.Absent {
			return false
		}
	}
	return l.Size > 0
}

// Fields returns the fields that a class declares, without the fields of its bases. rows has the class's rows of the
// Field table: the rows confirm each field, and bound the number of fields.
func (s *System) Fields(mt arch.Addr, rows map[uint32]string) ([]Field, error) {
	l := &s.fields
	if !l.known() {
		return nil, fmt.Errorf("%w: the layout of fields is not known", contract.ErrFormat)
	}
	canon, class, err := s.canonical(mt)
	if err != nil {
		return nil, err
	}
	at, err := s.mem.Pointer(class + arch.Addr(l.List))
	if err != nil || at == 0 {
		return nil, err
	}
	var out []Field
	for range min(len(rows), maxFields) {
		owner, err := s.mem.Pointer(at + arch.Addr(l.Table))
		if err != nil || owner != canon {
			break // the list has no end mark: literal fields have rows, but no descriptions
		}
		f, err := s.field(at)
		if err != nil {
			return nil, err
		}
		if f.Type == 0 { // a MethodDescChunk follows: a chunk begins like a field, but goes on with an address
			break
		}
		if rows[f.RID] == "" {
			if f.RID &= fieldPacked; rows[f.RID] == "" {
				return nil, fmt.Errorf("%w: %v has a field that its metadata does not have", ErrCorrupt, mt)
			}
		}
		out = append(out, f)
		at += arch.Addr(l.Size)
	}
	return out, nil
}

func (s *System) field(at arch.Addr) (Field, error) {
	one, err := s.mem.Uint32(at + arch.Addr(s.fields.Word1))
	if err != nil {
		return Field{}, err
	}
	two, err := s.mem.Uint32(at + arch.Addr(s.fields.Word2))
	if err != nil {
		return Field{}, err
	}
	f := Field{RID: one & fieldRow, Type: uint8(two >> fieldType), Static: one&fieldStatic != 0,
		Local: one&fieldLocal != 0}
	offset := two & fieldOffset
	if f.Static && (f.Reference() || f.Boxed() || f.Local) && offset <= fieldLast {
		f.Offset = offset
	}
	if f.Static || f.Type == 0 {
		return f, nil
	}
	if offset > fieldLast {
		return Field{}, fmt.Errorf("%w: a field at %#x", ErrCorrupt, offset)
	}
	f.Offset = offset + objectHeader
	return f, nil
}

// Base returns the MethodTable of a class's base class; 0: there is none.
func (s *System) Base(mt arch.Addr) (arch.Addr, error) {
	if s.base == contract.Absent {
		return 0, fmt.Errorf("%w: the layout of base classes is not known", contract.ErrFormat)
	}
	return s.mem.Pointer(mt + arch.Addr(s.base))
}

// BaseSize returns the size in bytes of the objects of a class, without elements. As in the runtime, the size counts
// the header in front of the MethodTable. 0: not known.
func (s *System) BaseSize(mt arch.Addr) (uint32, error) {
	if s.l.Size == contract.Absent {
		return 0, nil
	}
	return s.mem.Uint32(mt + arch.Addr(s.l.Size))
}

// ComponentSize returns the size of one component of an array or a string, in bytes; 0: objects of the class have no
// components.
func (s *System) ComponentSize(mt arch.Addr) (uint32, error) {
	flags, err := s.mem.Uint32(mt + arch.Addr(s.l.Flags))
	if err != nil || flags&flagComponentSize == 0 {
		return 0, err
	}
	return flags & 0xffff, nil
}
