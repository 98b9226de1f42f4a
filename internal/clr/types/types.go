// Package types reads the runtime's type handles: MethodTables and TypeDescs.
//
// Sources (dotnet/runtime): docs/design/datacontracts/RuntimeTypeSystem.md,
// src/coreclr/vm/methodtable.h, class.h (EEClass), typedesc.h, typehandle.h.
package types

import (
	"errors"
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// Kind is the kind of a type handle.
type Kind uint8

// The kinds of type handle. A Class is any type with a definition in metadata:
// class, struct, interface, enum, delegate, primitive.
const (
	Class Kind = iota
	SZArray
	Array
	Pointer
	ByRef
	TypeParam   // parameter of a generic type
	MethodParam // parameter of a generic method
	FnPtr
)

// Type is the decoded type of a type handle.
type Type struct {
	Kind    Kind
	Generic bool // a Class with type arguments
	Rank    int  // of an Array

	Collectible bool // a class or an array that can be unloaded

	Module arch.Addr   // of a Class and of generic parameters
	RID    uint32      // row in the TypeDef table of a Class, in GenericParam of a parameter
	Args   []arch.Addr // type arguments of a Class; return type and parameters of a FnPtr
	Elem   arch.Addr   // element type of arrays, pointers and references
}

// ErrCorrupt: the memory at an address cannot be a MethodTable or TypeDesc.
var ErrCorrupt = errors.New("not a type handle")

// ErrFields: the fields of a class are not known, though the class is.
var ErrFields = errors.New("the fields are not known")

const (
	// MaxArgs bounds type arguments. The runtime allows more, but no program uses more.
	MaxArgs = 256
	maxRank = 32
)

// Bits of MethodTable.MTFlags (methodtable.h) and of handles (typehandle.h).
const (
	flagComponentSize = 0x80000000
	genericsMask      = 0x30
	genericsTypical   = 0x30
	categoryMask      = 0x000C0000
	categoryArray     = 0x00080000
	categoryValueType = 0x00040000
	flagSZArray       = 0x00020000
	flagCollectible   = 0x00200000 // also in gcenv.object.h, MTFlag_Collectible
	ridShift          = 8          // in MTFlags2

	typeDescTag = 2
	canonTag    = 1 // in EEClassOrCanonMT
)

// Possible element types of a TypeDesc (corhdr.h, CorElementType).
const (
	elementPtr   = 0x0f
	elementByRef = 0x10
	elementVar   = 0x13
	elementFnPtr = 0x1b
	elementMVar  = 0x1e
)

type layout struct {
	Flags      uint32 `clr:"MethodTable.MTFlags"`
	Flags2     uint32 `clr:"MethodTable.MTFlags2"`
	Module     uint32 `clr:"MethodTable.Module|MethodTable.LoaderModule"`
	Class      uint32 `clr:"MethodTable.EEClassOrCanonMT"`
	PerInst    uint32 `clr:"MethodTable.PerInstInfo"`
	Parent     uint32 `clr:"MethodTable.ParentMethodTable"`
	Size       uint32 `clr:"MethodTable.BaseSize,optional"`
	ClassMT    uint32 `clr:"EEClass.MethodTable"`
	Rank       uint32 `clr:"ArrayClass.Rank,optional"`
	NumDicts   uint32 `clr:"GenericsDictInfo.NumDicts"`
	NumArgs    uint32 `clr:"GenericsDictInfo.NumTypeArgs"`
	DescFlags  uint32 `clr:"TypeDesc.TypeAndFlags"`
	ParamArg   uint32 `clr:"ParamTypeDesc.TypeArg"`
	VarModule  uint32 `clr:"TypeVarTypeDesc.Module"`
	VarToken   uint32 `clr:"TypeVarTypeDesc.Token"`
	FnArgCount uint32 `clr:"FnPtrTypeDesc.NumArgs"`
	FnArgs     uint32 `clr:"FnPtrTypeDesc.RetAndArgTypes"`
}

// sizeLayout leads to the rank of an array where no field has the rank (.NET 11): an array object has a lower bound
// and a length, of four bytes each, for each dimension.
type sizeLayout struct {
	BaseSize  uint32 `clr:"MethodTable.BaseSize"`
	ArrayBase uint64 `global:"ArrayBaseSize"` // in bytes, without bounds and lengths
}

const boundsSize = 8 // of one dimension

// System reads the types of one runtime. A System is not safe for concurrent use.
type System struct {
	mem  *target.Reader
	l    layout
	size sizeLayout
	rank func(mt arch.Addr) (uint32, error) // of an array other than a one-dimensional, zero-based array

	token       tokenLayout
	module      func(mt arch.Addr) (arch.Addr, error) // that defines a type
	rid         func(flags2 uint32) (uint32, error)   // of a type, from its MTFlags2
	collectible uint32                                // the bit of MTFlags

	fields  fieldLayout
	statics staticsLayout
	loader  loaderLayout
	base    uint32 // offset of the base class in a MethodTable

	continuation arch.Addr // address of the variable with Continuation's MethodTable; 0: there is no Continuation
	singleton    arch.Addr // address of the variable with the EEClass that the runtime's classes of Continuations share
}

// New binds the type system of the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor) (*System, error) {
	s := &System{mem: target.NewReader(mem)}
	if err := d.Bind(&s.l); err != nil {
		return nil, err
	}
	if err := s.bindModule(d); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.fields); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.statics); err != nil {
		return nil, err
	}
	if err := d.Bind(&s.loader); err != nil {
		return nil, err
	}
	if at, ok := d.Global("ContinuationMethodTable"); ok {
		s.continuation = arch.Addr(at)
	}
	if at, ok := d.Global("ContinuationSingletonEEClass"); ok {
		s.singleton = arch.Addr(at)
	}
	s.base = contract.Absent
	if off, ok := d.Offset("MethodTable", "ParentMethodTable"); ok {
		s.base = off
	}
	if s.l.Rank != contract.Absent {
		s.rank = s.classRank
		return s, nil
	}
	s.rank = s.sizeRank
	return s, d.Bind(&s.size)
}

// Read decodes the type handle h.
func (s *System) Read(h arch.Addr) (Type, error) {
	if h == 0 {
		return Type{}, fmt.Errorf("%w: null", ErrCorrupt)
	}
	if h&typeDescTag != 0 {
		return s.desc(h &^ typeDescTag)
	}
	flags, err := s.mem.Uint32(h + arch.Addr(s.l.Flags))
	if err != nil {
		return Type{}, err
	}
	read := s.class
	switch {
	case flags&categoryMask == categoryArray:
		read = s.array
	case s.isContinuation(h): // has the name of the base class
		if h, err = s.mem.Pointer(h + arch.Addr(s.base)); err != nil {
			return Type{}, err
		}
	}
	t, err := read(h, flags)
	t.Collectible = flags&s.collectible != 0
	return t, err
}

// Check reports whether mt looks like a MethodTable: the EEClass must lead back to mt, or to the canonical
// MethodTable that mt shares code with.
func (s *System) Check(mt arch.Addr) error {
	canon, class, err := s.canonical(mt)
	if err != nil {
		return err
	}
	back, err := s.mem.Pointer(class + arch.Addr(s.l.ClassMT))
	if err != nil {
		return err
	}
	if back != canon && !s.isContinuation(mt) {
		return fmt.Errorf("%w: the class of %v belongs to %v", ErrCorrupt, mt, back)
	}
	return nil
}

// isContinuation reports whether the runtime has made a MethodTable for the Continuations of a method that the
// runtime suspends, with fields for the method's variables. Such MethodTables derive from Continuation, share one
// EEClass, and have no metadata (RuntimeTypeSystem.md, IsContinuationWithoutMetadata; vm/asynccontinuations.cpp).
// CoreLib's own classes that derive from Continuation have their own EEClasses and names.
func (s *System) isContinuation(mt arch.Addr) bool {
	return s.base != contract.Absent && s.leadsTo(mt+arch.Addr(s.base), s.continuation) &&
		s.leadsTo(mt+arch.Addr(s.l.Class), s.singleton)
}

// leadsTo reports whether a field has the pointer that is noted at an address.
func (s *System) leadsTo(field, noted arch.Addr) bool {
	if noted == 0 {
		return false
	}
	at, err := s.mem.Pointer(field)
	if err != nil || at == 0 {
		return false
	}
	want, err := s.mem.Pointer(noted)
	return err == nil && at == want
}

// canonical returns the MethodTable that mt shares code with, perhaps mt itself, and the EEClass of both.
func (s *System) canonical(mt arch.Addr) (canon, class arch.Addr, err error) {
	class, err = s.mem.Pointer(mt + arch.Addr(s.l.Class))
	if err != nil || class&canonTag == 0 {
		return mt, class, err
	}
	canon = class &^ canonTag
	class, err = s.mem.Pointer(canon + arch.Addr(s.l.Class))
	return canon, class, err
}

func (s *System) class(mt arch.Addr, flags uint32) (Type, error) {
	t := Type{Kind: Class}
	var err error
	if t.Module, err = s.module(mt); err != nil {
		return t, err
	}
	flags2, err := s.mem.Uint32(mt + arch.Addr(s.l.Flags2))
	if err != nil {
		return t, err
	}
	if t.RID, err = s.rid(flags2); err != nil {
		return t, err
	}
	// Strings have a component size and then no generics bits.
	if flags&flagComponentSize != 0 || flags&genericsMask == 0 {
		return t, nil
	}
	t.Generic = true
	if flags&genericsMask == genericsTypical {
		return t, nil // the definition: the arguments are the parameters
	}
	t.Args, err = s.typeArgs(mt)
	return t, err
}

// typeArgs reads the type arguments of an instantiated type. PerInstInfo points at an array of dictionaries; the last
// dictionary begins with the type arguments, and the counts lie just before the array (methodtable.h,
// GenericsDictInfo).
func (s *System) typeArgs(mt arch.Addr) ([]arch.Addr, error) {
	per, err := s.mem.Pointer(mt + arch.Addr(s.l.PerInst))
	if err != nil {
		return nil, err
	}
	info := per - arch.Addr(s.l.NumArgs+2)
	dicts, err := s.mem.Uint16(info + arch.Addr(s.l.NumDicts))
	if err != nil {
		return nil, err
	}
	n, err := s.mem.Uint16(info + arch.Addr(s.l.NumArgs))
	if err != nil {
		return nil, err
	}
	if dicts == 0 || n == 0 || n > MaxArgs {
		return nil, fmt.Errorf("%w: %d type arguments in %d dictionaries of %v", ErrCorrupt, n, dicts, mt)
	}
	dict, err := s.mem.Pointer(per + 8*arch.Addr(dicts-1))
	if err != nil {
		return nil, err
	}
	return s.Handles(dict, int(n))
}

// Handles reads n type handles at address at.
func (s *System) Handles(at arch.Addr, n int) ([]arch.Addr, error) {
	if n < 0 || n > MaxArgs {
		return nil, fmt.Errorf("%w: %d type arguments", ErrCorrupt, n)
	}
	out := make([]arch.Addr, n)
	for i := range out {
		p, err := s.mem.Pointer(at + 8*arch.Addr(i))
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

// array: the element type takes the place of PerInstInfo (methodtable.h, m_ElementTypeHnd).
func (s *System) array(mt arch.Addr, flags uint32) (Type, error) {
	elem, err := s.mem.Pointer(mt + arch.Addr(s.l.PerInst))
	if err != nil {
		return Type{}, err
	}
	t := Type{Kind: SZArray, Rank: 1, Elem: elem}
	if flags&flagSZArray != 0 {
		return t, nil
	}
	rank, err := s.rank(mt)
	if err != nil {
		return t, err
	}
	if rank == 0 || rank > maxRank {
		return t, fmt.Errorf("%w: array of rank %d", ErrCorrupt, rank)
	}
	t.Kind, t.Rank = Array, int(rank)
	return t, nil
}

// classRank reads the rank from the array's class.
func (s *System) classRank(mt arch.Addr) (uint32, error) {
	_, class, err := s.canonical(mt)
	if err != nil {
		return 0, err
	}
	rank, err := s.mem.Uint8(class + arch.Addr(s.l.Rank))
	return uint32(rank), err
}

// sizeRank works the rank out from the size of the array's objects
// (RuntimeTypeSystem.md, IsArray).
func (s *System) sizeRank(mt arch.Addr) (uint32, error) {
	size, err := s.mem.Uint32(mt + arch.Addr(s.size.BaseSize))
	if err != nil {
		return 0, err
	}
	bounds := uint64(size) - s.size.ArrayBase
	if uint64(size) < s.size.ArrayBase || bounds%boundsSize != 0 {
		return 0, fmt.Errorf("%w: an array of %d bytes", ErrCorrupt, size)
	}
	return uint32(bounds / boundsSize), nil
}

func (s *System) desc(d arch.Addr) (t Type, err error) {
	flags, err := s.mem.Uint32(d + arch.Addr(s.l.DescFlags))
	if err != nil {
		return t, err
	}
	switch flags & 0xff {
	case elementPtr, elementByRef:
		t.Kind = Pointer
		if flags&0xff == elementByRef {
			t.Kind = ByRef
		}
		t.Elem, err = s.mem.Pointer(d + arch.Addr(s.l.ParamArg))
	case elementVar, elementMVar:
		t.Kind = TypeParam
		if flags&0xff == elementMVar {
			t.Kind = MethodParam
		}
		if t.Module, err = s.mem.Pointer(d + arch.Addr(s.l.VarModule)); err != nil {
			return t, err
		}
		var token uint32
		token, err = s.mem.Uint32(d + arch.Addr(s.l.VarToken))
		t.RID = token & 0xffffff
	case elementFnPtr:
		t.Kind = FnPtr
		var n uint32
		if n, err = s.mem.Uint32(d + arch.Addr(s.l.FnArgCount)); err != nil {
			return t, err
		}
		t.Args, err = s.Handles(d+arch.Addr(s.l.FnArgs), int(min(n, MaxArgs))+1)
	default:
		err = fmt.Errorf("%w: TypeDesc of element type %#x", ErrCorrupt, flags&0xff)
	}
	return t, err
}
