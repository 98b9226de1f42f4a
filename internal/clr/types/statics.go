package types

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// The static fields of a class that are references lie in an array of objects, in a row. In front of the auxiliary data
// of a MethodTable that has static fields is where they begin.
//
// Sources (dotnet/runtime): src/coreclr/vm/methodtable.h (MethodTableAuxiliaryData, DynamicStaticsInfo),
// vm/ceeload.h (LookupMapBase), docs/design/datacontracts/RuntimeTypeSystem.md (GetGCStaticsBasePointer). .NET 8 keeps
// them elsewhere.
type staticsLayout struct {
	Aux   uint32 `clr:"MethodTable.AuxiliaryData,optional"`
	Size  uint32 `clr:"DynamicStaticsInfo.!,optional"`
	GC    uint32 `clr:"DynamicStaticsInfo.GCStatics,optional"`
	Map   uint32 `clr:"Module.TypeDefToMethodTableMap,optional"`
	Next  uint32 `clr:"ModuleLookupMap.Next,optional"`
	Table uint32 `clr:"ModuleLookupMap.TableData,optional"`
	Count uint32 `clr:"ModuleLookupMap.Count,optional"`
}

const (
	staticsOwner = 16 // of the MethodTable in a DynamicStaticsInfo
	staticsFlags = 1  // of the address where they begin: the class has not been initialised
	mapFlags     = 7  // of an element of the map
	maxBlocks    = 1 << 10
	maxDefined   = 1 << 20
)

func (l *staticsLayout) known() bool {
	for _, v := range []uint32{l.Aux, l.Size, l.GC, l.Map, l.Next, l.Table, l.Count} {
		if v == contract.Absent {
			return false
		}
	}
	return true
}

// Defined returns the MethodTables of the classes that a module defines, as far as they are loaded and not generic.
func (s *System) Defined(module arch.Addr) ([]arch.Addr, error) {
	l := &s.statics
	if !l.known() {
		return nil, fmt.Errorf("%w: the layout of static fields is not known", contract.ErrFormat)
	}
	var out []arch.Addr
	elements := 0
	at := module + arch.Addr(l.Map)
	for n := 0; at != 0; n++ {
		count, err := s.mem.Uint32(at + arch.Addr(l.Count))
		if err != nil {
			return out, err
		}
		if elements += int(count); n >= maxBlocks || elements > maxDefined {
			return out, fmt.Errorf("%w: a map of more than %d classes", ErrCorrupt, maxDefined)
		}
		table, err := s.mem.Pointer(at + arch.Addr(l.Table))
		if err != nil {
			return out, err
		}
		for i := range arch.Addr(count) {
			mt, err := s.mem.Pointer(table + 8*i)
			if err != nil {
				return out, err
			}
			if mt &^= mapFlags; mt != 0 {
				out = append(out, mt)
			}
		}
		if at, err = s.mem.Pointer(at + arch.Addr(l.Next)); err != nil {
			return out, err
		}
	}
	return out, nil
}

// Definition returns the MethodTable of the class that a row of a module's TypeDef table is of; 0: it is not loaded, or
// it is generic.
func (s *System) Definition(module arch.Addr, rid uint32) (arch.Addr, error) {
	l := &s.statics
	if !l.known() {
		return 0, fmt.Errorf("%w: the layout of static fields is not known", contract.ErrFormat)
	}
	at := module + arch.Addr(l.Map)
	for n := 0; at != 0 && n < maxBlocks; n++ {
		count, err := s.mem.Uint32(at + arch.Addr(l.Count))
		if err != nil {
			return 0, err
		}
		if rid < count {
			return s.definition(at, rid)
		}
		rid -= count
		if at, err = s.mem.Pointer(at + arch.Addr(l.Next)); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// definition reads an element of a block of the map.
func (s *System) definition(block arch.Addr, i uint32) (arch.Addr, error) {
	table, err := s.mem.Pointer(block + arch.Addr(s.statics.Table))
	if err != nil {
		return 0, err
	}
	mt, err := s.mem.Pointer(table + 8*arch.Addr(i))
	return mt &^ mapFlags, err
}

// Statics returns where the static fields of a class begin that are references; false: it has none, or that is not
// known.
func (s *System) Statics(mt arch.Addr) (arch.Addr, bool) {
	l := &s.statics
	if !l.known() {
		return 0, false
	}
	aux, err := s.mem.Pointer(mt + arch.Addr(l.Aux))
	if err != nil || aux < arch.Addr(l.Size) {
		return 0, false
	}
	info := aux - arch.Addr(l.Size)
	if owner, err := s.mem.Pointer(info + staticsOwner); err != nil || owner != mt {
		return 0, false // others have something else there
	}
	base, err := s.mem.Pointer(info + arch.Addr(l.GC))
	base &^= staticsFlags
	return base, err == nil && base != 0
}
