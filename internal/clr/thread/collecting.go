package thread

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// gcLayout leads to the number of reasons why objects of the heap may not be where references say. The garbage
// collector describes itself to debuggers by a table (src/coreclr/gc/gcinterface.dacvars.def, struct GcDacVars). Its
// entry gc_structures_invalid_cnt is the address of that number, which is not 0 from the beginning of a collection
// that moves objects to its end (src/coreclr/gc/gcscan.cpp, GcRuntimeStructuresValid).
type gcLayout struct {
	Globals arch.Addr `global:"GCDacGlobals,optional"` // where the address of the table is
	Major   uint32    `clr:"GcDacVars.MajorVersion,optional"`
	Invalid uint32    `clr:"GcDacVars.StructuresInvalid,optional"`
}

// gcMajor is the version of the table that is known. Within it, entries are only added.
const gcMajor = 2

// Settled reports whether no objects are being moved now. It is false if that is not known.
func (s *Store) Settled() bool {
	l := &s.gc
	if l.Globals == 0 || l.Major == contract.Absent || l.Invalid == contract.Absent {
		return false
	}
	table, err := s.mem.Pointer(l.Globals)
	if err != nil || table == 0 {
		return false
	}
	major, err := s.mem.Bytes(table+arch.Addr(l.Major), 1)
	if err != nil || major[0] != gcMajor {
		return false
	}
	at, err := s.mem.Pointer(table + arch.Addr(l.Invalid))
	if err != nil || at == 0 {
		return false
	}
	n, err := s.mem.Uint32(at)
	return err == nil && n == 0
}
