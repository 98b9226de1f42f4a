package codemap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// GCInfo is the place of the GC info of a method's code.
type GCInfo struct {
	At    arch.Addr // 0: the code has none
	Major uint16    // format version of the ReadyToRun image around the GC info; 0: the JIT's
}

// GCInfo finds the GC info of c's method.
func (m *Map) GCInfo(c *Code) (GCInfo, error) {
	switch c.Kind {
	case JIT:
		if m.l.HdrGC == contract.Absent {
			return GCInfo{}, nil
		}
		at, err := m.mem.Pointer(c.header + arch.Addr(m.l.HdrGC))
		return GCInfo{At: at}, err
	case ReadyToRun:
		return m.gcInfoR2R(c)
	}
	return GCInfo{}, nil
}

// Shape of the unwind information of a ReadyToRun method (win64unwind.h, UNWIND_INFO; codeman.cpp,
// GetUnwindDataBlob): a header with the number of codes, the codes, and always the RVA of a personality
// routine. The GC info follows (ReadyToRunJitManager::GetGCInfoToken).
const (
	unwindHeader      = 4
	unwindCodes       = 2 // offset of the number of codes
	unwindCodeSize    = 2
	unwindPersonality = 4
	unwindAlign       = 4
)

func (m *Map) gcInfoR2R(c *Code) (GCInfo, error) {
	_, f, ok, err := m.searchR2R(c.image, uint64(c.MethodStart-c.Base))
	if err != nil {
		return GCInfo{}, err
	}
	if !ok || c.Base+arch.Addr(f.begin) != c.MethodStart {
		return GCInfo{}, corrupt("no function table entry for the method at %v", c.MethodStart)
	}
	version, err := m.mem.Uint32(c.image.header + r2rMajor)
	if err != nil {
		return GCInfo{}, err
	}
	unwind := c.Base + arch.Addr(f.unwind)
	codes, err := m.mem.Uint8(unwind + unwindCodes)
	if err != nil {
		return GCInfo{}, err
	}
	size := arch.Addr(unwindHeader) + unwindCodeSize*arch.Addr(codes) + unwindPersonality
	return GCInfo{unwind + (size+unwindAlign-1)&^(unwindAlign-1), uint16(version)}, nil
}
