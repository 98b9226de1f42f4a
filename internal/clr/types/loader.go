package types

import (
	"fmt"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// loaderLayout leads from a type to its loader. A LoaderAllocator keeps everything that was loaded together:
// everything that is not collectible, or one load context that can be unloaded. An instantiation is loaded with its
// type arguments, so the loader module of the instantiation need not be the defining module.
//
// Sources (dotnet/runtime): src/coreclr/vm/methodtable.h (MethodTableAuxiliaryData, m_pLoaderModule), vm/ceeload.h
// (m_loaderAllocator), vm/peassembly.h (m_pAssemblyBinder), binder/inc/assemblybinder.h
// (m_ptrManagedAssemblyLoadContext, a handle).
type loaderLayout struct {
	Aux       uint32 `clr:"MethodTable.AuxiliaryData,optional"`
	Module    uint32 `clr:"MethodTableAuxiliaryData.LoaderModule,optional"`
	Allocator uint32 `clr:"Module.LoaderAllocator,optional"`
	Assembly  uint32 `clr:"Module.PEAssembly,optional"`
	Binder    uint32 `clr:"PEAssembly.AssemblyBinder,optional"`
	Context   uint32 `clr:"AssemblyBinder.AssemblyLoadContext,optional"`
}

var errLoader = fmt.Errorf("%w: who has loaded a type is not known", contract.ErrFormat)

// follow reads a chain of pointers, each at an offset from the pointer before.
func (s *System) follow(at arch.Addr, offsets ...uint32) (arch.Addr, error) {
	for _, off := range offsets {
		if off == contract.Absent {
			return 0, errLoader
		}
		var err error
		if at, err = s.mem.Pointer(at + arch.Addr(off)); err != nil {
			return 0, err
		}
		if at == 0 {
			return 0, errLoader
		}
	}
	return at, nil
}

// LoaderModule returns the module that a type was loaded with, by the type's MethodTable.
func (s *System) LoaderModule(mt arch.Addr) (arch.Addr, error) {
	if s.loader.Aux == contract.Absent { // .NET 8
		return s.follow(mt, s.l.Module)
	}
	return s.follow(mt, s.loader.Aux, s.loader.Module)
}

// LoaderAllocator returns the address of the runtime's LoaderAllocator that keeps a type.
func (s *System) LoaderAllocator(mt arch.Addr) (arch.Addr, error) {
	m, err := s.LoaderModule(mt)
	if err != nil {
		return 0, err
	}
	return s.follow(m, s.loader.Allocator)
}

// LoadContext returns the binder that finds a type's assemblies, one for each load context, and the binder's managed
// object, an AssemblyLoadContext.
func (s *System) LoadContext(mt arch.Addr) (binder, object arch.Addr, err error) {
	m, err := s.LoaderModule(mt)
	if err != nil {
		return 0, 0, err
	}
	if binder, err = s.follow(m, s.loader.Assembly, s.loader.Binder); err != nil {
		return 0, 0, err
	}
	object, err = s.follow(binder, s.loader.Context, 0)
	return binder, object, err
}
