package thread

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// Each thread has its own copy of the thread-static fields. References among the fields lie in arrays of objects, one
// for each class. An array of the thread leads to these arrays.
//
// Sources (dotnet/runtime): docs/design/datacontracts/Thread.md (GetThreadLocalStaticBase),
// src/coreclr/vm/threadstatics.h (ThreadLocalData). .NET 8 keeps the fields elsewhere.
type localsLayout struct {
	Data    uint32 `clr:"Thread.ThreadLocalDataPtr,optional"`
	Array   uint32 `clr:"ThreadLocalData.NonCollectibleTlsArrayData,optional"`
	Without uint64 `global:"NumberOfTlsOffsetsNotUsedInNoncollectibleArray,optional"`
}

// LocalDataAt returns the offset in a Thread of the address of its ThreadLocalData, in bytes; false: not known.
func (s *Store) LocalDataAt() (uint32, bool) { return s.locals.Data, s.locals.Data != contract.Absent }

// LocalData returns the address of the ThreadLocalData of a thread; 0: there is none yet, or the address is not
// known. The ThreadLocalData does not move.
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

// Statics returns the array that leads to the static fields of a thread; false: there is none, or the array is not
// known. skipped is the number of indexes without a place in the array: subtract skipped from an index.
func (s *Store) Statics(thread arch.Addr) (array arch.Addr, skipped uint32, ok bool) {
	l := &s.locals
	data := s.LocalData(thread)
	if data == 0 || l.Array == contract.Absent {
		return 0, 0, false
	}
	array, err := s.mem.Pointer(data + arch.Addr(l.Array))
	return array, uint32(l.Without), err == nil && array != 0
}
