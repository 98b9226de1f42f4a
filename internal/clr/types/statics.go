package types

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// The references among the static fields of a class lie in a row in an array of objects. The address of the row is in
// front of the auxiliary data of the class's MethodTable.
//
// Sources (dotnet/runtime): src/coreclr/vm/methodtable.h (MethodTableAuxiliaryData, DynamicStaticsInfo), vm/ceeload.h
// (LookupMapBase), docs/design/datacontracts/RuntimeTypeSystem.md (GetGCStaticsBasePointer).
//
// In .NET 8, the static references of all non-generic classes of a module lie in one row. A structure of the module
// leads to the row (vm/appdomain.hpp, DomainLocalModule; vm/ceeload.cpp, Module::BuildStaticsOffsets). The place of
// generic classes' static fields is not known in .NET 8.
type staticsLayout struct {
	Aux   uint32 `clr:"MethodTable.AuxiliaryData,optional"`
	Size  uint32 `clr:"DynamicStaticsInfo.!,optional"`
	GC    uint32 `clr:"DynamicStaticsInfo.GCStatics,optional"`
	Local uint32 `clr:"ThreadStaticsInfo.!,optional"`
	Index uint32 `clr:"ThreadStaticsInfo.GCTlsIndex,optional"`
	Other uint32 `clr:"ThreadStaticsInfo.NonGCTlsIndex,optional"`
	Old   uint32 `clr:"Module.ModuleID,optional"` // .NET 8
	OldGC uint32 `clr:"DomainLocalModule.GCStatics,optional"`
	Types uint32 `clr:"Module.AvailableTypeParams,optional"`
	Heads uint32 `clr:"EETypeHashTable.Buckets,optional"`
	Entry uint32 `clr:"EETypeHashTable.VolatileEntryValue,optional"`
	After uint32 `clr:"EETypeHashTable.VolatileEntryNextEntry,optional"`
	Map   uint32 `clr:"Module.TypeDefToMethodTableMap,optional"`
	Next  uint32 `clr:"ModuleLookupMap.Next,optional"`
	Table uint32 `clr:"ModuleLookupMap.TableData,optional"`
	Count uint32 `clr:"ModuleLookupMap.Count,optional"`
}

const (
	staticsOwner = 16 // of the MethodTable in a DynamicStaticsInfo
	staticsFlags = 1  // of the row's address: the class has not been initialised
	mapFlags     = 7  // of an element of the map
	maxBlocks    = 1 << 10
	maxDefined   = 1 << 20
)

// known reports whether the map of a module's classes is known.
func (l *staticsLayout) known() bool {
	for _, v := range []uint32{l.Map, l.Next, l.Table, l.Count} {
		if v == contract.Absent {
			return false
		}
	}
	return true
}

// Defined returns the MethodTables of the classes that a module defines. Classes that are generic or not loaded are
// missing.
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

// Definition returns the MethodTable of the class in a row of a module's TypeDef table; 0: the class is not loaded,
// or is generic.
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

// Statics returns the address from which the offsets of a class's static references count; false: the class has none,
// or the address is not known.
func (s *System) Statics(mt arch.Addr) (arch.Addr, bool) {
	l := &s.statics
	if l.Old != contract.Absent && l.OldGC != contract.Absent {
		return s.oldStatics(mt)
	}
	if l.Aux == contract.Absent || l.Size == contract.Absent || l.GC == contract.Absent {
		return 0, false
	}
	aux, err := s.mem.Pointer(mt + arch.Addr(l.Aux))
	if err != nil || aux < arch.Addr(l.Size) {
		return 0, false
	}
	info := aux - arch.Addr(l.Size)
	if owner, err := s.mem.Pointer(info + staticsOwner); err != nil || owner != mt {
		return 0, false // other classes have other data there
	}
	base, err := s.mem.Pointer(info + arch.Addr(l.GC))
	base &^= staticsFlags
	return base, err == nil && base != 0
}

// oldStatics is Statics in .NET 8.
func (s *System) oldStatics(mt arch.Addr) (arch.Addr, bool) {
	t, err := s.Read(mt)
	if err != nil || t.Module == 0 || t.Kind != Class || len(t.Args) > 0 || t.Collectible {
		return 0, false
	}
	local, err := s.mem.Pointer(t.Module + arch.Addr(s.statics.Old))
	if err != nil || local == 0 {
		return 0, false
	}
	base, err := s.mem.Pointer(local + arch.Addr(s.statics.OldGC))
	return base, err == nil && base != 0
}

// A TLSIndex: an index, and its use (vm/threadstatics.h, TLSIndexType).
const (
	localIndex  = 1<<24 - 1
	localKind   = 24
	localArray  = 0 // of the array of non-collectible classes
	localDirect = 2 // an offset in the ThreadLocalData itself
)

// ThreadStatics returns the number of the array with the thread-static references of a class; false: not known. A
// class without thread-static references may have other data in the place, and the data may look like a number.
func (s *System) ThreadStatics(mt arch.Addr) (index uint32, ok bool) {
	return s.threadStatics(mt, s.statics.Index, localArray)
}

// DirectStatics returns the offset in a ThreadLocalData (thread.Store.LocalData) from which the offsets of a class's
// other thread-static fields count; false: the fields are elsewhere, or the offset is not known.
func (s *System) DirectStatics(mt arch.Addr) (offset uint32, ok bool) {
	return s.threadStatics(mt, s.statics.Other, localDirect)
}

// threadStatics reads the index at an offset of the ThreadStaticsInfo of a class, if the index has the right kind.
func (s *System) threadStatics(mt arch.Addr, at, kind uint32) (index uint32, ok bool) {
	l := &s.statics
	if l.Aux == contract.Absent || l.Size == contract.Absent || l.Local == contract.Absent || at == contract.Absent {
		return 0, false
	}
	aux, err := s.mem.Pointer(mt + arch.Addr(l.Aux))
	if err != nil || aux < arch.Addr(l.Local) {
		return 0, false
	}
	if owner, err := s.mem.Pointer(aux - arch.Addr(l.Size) + staticsOwner); err != nil || owner != mt {
		return 0, false
	}
	raw, err := s.mem.Uint32(aux - arch.Addr(l.Local) + arch.Addr(at))
	return raw & localIndex, err == nil && raw>>localKind == kind
}

// Instantiations returns the MethodTables of the instantiations of generic classes that a module has loaded, arrays
// among them. The runtime keeps them in a hash table, with a chain for each bucket (vm/typehash.h,
// vm/dacenumerablehash.h). Even with an error, Instantiations returns the MethodTables that could be read.
func (s *System) Instantiations(module arch.Addr) ([]arch.Addr, error) {
	l := &s.statics
	if l.Types == contract.Absent || l.Heads == contract.Absent || l.Entry == contract.Absent ||
		l.After == contract.Absent {
		return nil, fmt.Errorf("%w: the layout of generic classes is not known", contract.ErrFormat)
	}
	table, err := s.mem.Pointer(module + arch.Addr(l.Types))
	if err != nil || table == 0 {
		return nil, err
	}
	heads, err := s.mem.Pointer(table + arch.Addr(l.Heads))
	if err != nil || heads == 0 {
		return nil, err
	}
	n, err := s.mem.Uint64(heads)
	if err != nil {
		return nil, err
	}
	if n > maxHeads {
		return nil, fmt.Errorf("%w: %d buckets of generic classes", ErrCorrupt, n)
	}
	var out []arch.Addr
	left := maxDefined
	for i := range arch.Addr(n) {
		if out, err = s.chain(heads+8*(firstBucket+i), out, &left); err != nil {
			return out, err
		}
	}
	return out, nil
}

const (
	maxHeads    = 1 << 17
	firstBucket = 3 // of the array of buckets: the length, the next array and the end come first
	endOfChain  = 1 // of an address: the end of the chain, and no entry
	descHandle  = 2 // of a type handle: a TypeDesc, and no MethodTable
)

// chain appends the MethodTables of a bucket. left is the number of entries that may still be read.
func (s *System) chain(head arch.Addr, out []arch.Addr, left *int) ([]arch.Addr, error) {
	at, err := s.mem.Pointer(head)
	for err == nil && at != 0 && at&endOfChain == 0 {
		if *left--; *left < 0 {
			return out, fmt.Errorf("%w: more than %d generic classes", ErrCorrupt, maxDefined)
		}
		var handle arch.Addr
		if handle, err = s.mem.Pointer(at + arch.Addr(s.statics.Entry)); err != nil {
			break
		}
		if handle&descHandle == 0 {
			out = append(out, handle&^endOfChain)
		}
		at, err = s.mem.Pointer(at + arch.Addr(s.statics.After))
	}
	return out, err
}
