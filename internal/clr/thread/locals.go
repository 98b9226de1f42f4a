package thread

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// Each thread has its own static fields that are marked so. Those that are references lie in arrays of objects, one for
// each class, which an array of the thread leads to.
//
// Sources (dotnet/runtime): docs/design/datacontracts/Thread.md (GetThreadLocalStaticBase),
// src/coreclr/vm/threadstatics.h (ThreadLocalData). .NET 8 keeps them elsewhere.
type localsLayout struct {
	Data    uint32 `clr:"Thread.ThreadLocalDataPtr,optional"`
	Array   uint32 `clr:"ThreadLocalData.NonCollectibleTlsArrayData,optional"`
	Without uint64 `global:"NumberOfTlsOffsetsNotUsedInNoncollectibleArray,optional"`
}

// LocalDataAt returns where in a thread the address of its ThreadLocalData is, in bytes; false: that is not known.
func (s *Store) LocalDataAt() (uint32, bool) { return s.locals.Data, s.locals.Data != contract.Absent }

// LocalData returns where the ThreadLocalData of a thread is; 0: it has none yet, or that is not known. It does not
// move.
func (s *Store) LocalData(thread arch.Addr) arch.Addr {
	if s.locals.Data == contract.Absent {
		return 0
	}
	data, err := s.mem.Pointer(thread + arch.Addr(s.locals.Data))
	if err != nil {
		return 0
	}
	return data
}

// Statics returns the array that leads to the static fields of a thread; false: it has none, or that is not known.
// skipped is how many indices have no place in the array: that of an index is so much less.
func (s *Store) Statics(thread arch.Addr) (array arch.Addr, skipped uint32, ok bool) {
	l := &s.locals
	data := s.LocalData(thread)
	if data == 0 || l.Array == contract.Absent {
		return 0, 0, false
	}
	array, err := s.mem.Pointer(data + arch.Addr(l.Array))
	return array, uint32(l.Without), err == nil && array != 0
}
