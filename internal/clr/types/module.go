package types

import (
	"fmt"
	"math/bits"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// versionToken is the version of the contract RuntimeTypeSystem that stands for the MethodTables of .NET 8. .NET 8 is
// older than the contract. The second word of flags has 16 bits, and the row in the TypeDef table follows. A
// MethodTable has the module whose loader has made the type, not the defining module.
const versionToken contract.Version = "0"

// tokenLayout has the fields that only MethodTables of version 0 need (methodtable.h, class MethodTable).
type tokenLayout struct {
	Size     uint32 `clr:"MethodTable.!"`
	Virtuals uint32 `clr:"MethodTable.NumVirtuals"`
}

// Bits and shapes of MethodTables of version 0 (methodtable.h).
const (
	tokenShift       = 16         // in MTFlags2
	tokenOverflow    = 0xffff     // the row lies elsewhere: the assembly has more than 65,534 types
	tokenCollectible = 0x10000000 // in MTFlags

	// The low bits of MTFlags2 tell the multipurpose slots that a MethodTable has. The first two slots are the last
	// two fields, beginning with PerInstInfo. The others follow the pointers to the virtual methods; each pointer
	// leads to eight virtual methods.
	slotModule      = 0x10 // enum_flag_HasModuleOverride
	slotsInside     = 2
	virtualsInChunk = 8
)

func (s *System) bindModule(d *contract.Descriptor) error {
	s.module, s.rid, s.collectible = s.fieldModule, fieldRID, flagCollectible
	if d.Contracts["RuntimeTypeSystem"] != versionToken {
		return nil
	}
	s.module, s.rid, s.collectible = s.slotModule, tokenRID, tokenCollectible
	return d.Bind(&s.token)
}

// Module returns the module that defines the type of a MethodTable. No module defines an array; for an array, Module
// returns a module that the array depends on.
func (s *System) Module(mt arch.Addr) (arch.Addr, error) { return s.module(mt) }

func (s *System) fieldModule(mt arch.Addr) (arch.Addr, error) {
	return s.mem.Pointer(mt + arch.Addr(s.l.Module))
}

func fieldRID(flags2 uint32) (uint32, error) { return flags2 >> ridShift, nil }

// slotModule: if the module that has loaded an instantiation of a generic type is not the defining module, the
// canonical instantiation has a slot with the defining module (methodtable.inl, MethodTable::GetModule).
func (s *System) slotModule(mt arch.Addr) (arch.Addr, error) {
	flags, err := s.mem.Uint32(mt + arch.Addr(s.l.Flags))
	if err != nil {
		return 0, err
	}
	if flags&(flagComponentSize|genericsMask) == 0 {
		return s.fieldModule(mt)
	}
	if flags&categoryMask != categoryArray {
		if mt, _, err = s.canonical(mt); err != nil {
			return 0, err
		}
	}
	flags2, err := s.mem.Uint32(mt + arch.Addr(s.l.Flags2))
	if err != nil {
		return 0, err
	}
	if flags2&slotModule == 0 {
		return s.fieldModule(mt)
	}
	at := arch.Addr(s.l.PerInst)
	n := arch.Addr(bits.OnesCount32(flags2 & (slotModule - 1)))
	if n >= slotsInside {
		virtuals, err := s.mem.Uint16(mt + arch.Addr(s.token.Virtuals))
		if err != nil {
			return 0, err
		}
		chunks := (arch.Addr(virtuals) + virtualsInChunk - 1) / virtualsInChunk
		at, n = arch.Addr(s.token.Size), n-slotsInside+chunks
	}
	return s.mem.Pointer(mt + at + 8*n)
}

func tokenRID(flags2 uint32) (uint32, error) {
	rid := flags2 >> tokenShift
	if rid == tokenOverflow {
		return 0, fmt.Errorf("%w: a type of an assembly with more than %d types, which clrsnap cannot name on .NET 8",
			ErrCorrupt, tokenOverflow-1)
	}
	return rid, nil
}
