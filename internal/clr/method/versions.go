package method

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// versionTable is the version of the contract CodeVersions that stands for .NET 8. .NET 8 is older than the contract:
// a hash table of the AppDomain leads to a method's versions, and the MethodDesc does not; and methods begin with
// other tiers.
const versionTable contract.Version = "0"

// dataLayout is the way from a MethodDesc to its versions (method.hpp, struct
// MethodDescCodeData).
type dataLayout struct {
	CodeData   uint32 `clr:"MethodDesc.CodeData"`
	Versioning uint32 `clr:"MethodDescCodeData.VersioningState"`
	FirstTier  uint32 `clr:"MethodDescCodeData.OptimizationTier,optional"` // .NET 11
}

// tableLayout is the way in version 0 (appdomain.hpp, AppDomain::m_codeVersionManager; codeversion.h,
// CodeVersionManager::m_methodDescVersioningStateMap; shash.h).
type tableLayout struct {
	AppDomain arch.Addr `global:"AppDomain"`
	States    uint32    `clr:"AppDomain.MethodDescVersioningStateMap"`
	Table     uint32    `clr:"SHash.Table"`
	Size      uint32    `clr:"SHash.Size"`
	Method    uint32    `clr:"MethodDescVersioningState.MethodDesc"`
}

const (
	maxStates      = 1 << 24
	maxStateProbes = 1 << 10
	deletedState   = ^arch.Addr(0)
)

func (r *Reader) bindVersions(d *contract.Descriptor) error {
	if d.Contracts["CodeVersions"] == versionTable {
		r.versions, r.aggressive = r.tableState, true
		return d.Bind(&r.table)
	}
	r.versions = r.dataState
	return d.Bind(&r.data)
}

// firstVersion returns the newest NativeCodeVersionNode of a method; 0: there is none.
func (r *Reader) firstVersion(m *Method) (arch.Addr, error) {
	state, err := r.versions(m.Desc)
	if err != nil || state == 0 {
		return 0, err
	}
	return r.mem.Pointer(state + arch.Addr(r.l.FirstNode))
}

func (r *Reader) dataState(desc arch.Addr) (arch.Addr, error) {
	data, err := r.mem.Pointer(desc + arch.Addr(r.data.CodeData))
	if err != nil || data == 0 {
		return 0, err
	}
	return r.mem.Pointer(data + arch.Addr(r.data.Versioning))
}

// tableState looks a method up in a hash table with double hashing: the key is the low half of the address
// (shash.inl, SHash::Lookup). The runtime may replace the table during the read, so a state is accepted only if the
// state names the method.
func (r *Reader) tableState(desc arch.Addr) (arch.Addr, error) {
	domain, err := r.mem.Pointer(r.table.AppDomain)
	if err != nil || domain == 0 {
		return 0, err
	}
	at := domain + arch.Addr(r.table.States)
	table, err := r.mem.Pointer(at + arch.Addr(r.table.Table))
	if err != nil || table == 0 {
		return 0, err
	}
	size, err := r.mem.Uint32(at + arch.Addr(r.table.Size))
	if err != nil || size < 2 || size > maxStates {
		return 0, err
	}
	hash := uint32(desc)
	index, step := hash%size, hash%(size-1)+1
	for range min(size, maxStateProbes) {
		state, err := r.mem.Pointer(table + 8*arch.Addr(index))
		if err != nil || state == 0 {
			return 0, err
		}
		if state != deletedState {
			owner, err := r.mem.Pointer(state + arch.Addr(r.table.Method))
			if err != nil {
				return 0, err
			}
			if owner == desc {
				return state, nil
			}
		}
		index = (index + step) % size
	}
	return 0, nil
}
