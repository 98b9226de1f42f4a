package codemap

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// DebugInfo is the place of the debug info of a method's code: the map between native code and IL, and the places of
// the method's variables.
type DebugInfo struct {
	At    arch.Addr // 0: the code has none
	Major uint16    // format version of the ReadyToRun image around the debug info; 0: the JIT's
}

// r2rDebugInfo is READYTORUN_SECTION_DEBUG_INFO (readytorun.h): a native array with an entry for
// each method, by the index of the method's function table entry.
const r2rDebugInfo = 105

// r2rMajor is the offset in READYTORUN_HEADER of the major version.
const r2rMajor = 4

// DebugInfo finds the debug info of c's method.
func (m *Map) DebugInfo(c *Code) (DebugInfo, error) {
	switch c.Kind {
	case JIT:
		if m.l.HdrDebug == contract.Absent {
			return DebugInfo{}, nil
		}
		at, err := m.mem.Pointer(c.header + arch.Addr(m.l.HdrDebug))
		return DebugInfo{At: at}, err
	case ReadyToRun:
		return m.debugInfoR2R(c)
	}
	return DebugInfo{}, nil
}

func (m *Map) debugInfoR2R(c *Code) (DebugInfo, error) {
	rva, size, err := m.r2rSection(c.image, r2rDebugInfo)
	if err != nil || size == 0 {
		return DebugInfo{}, err
	}
	version, err := m.mem.Uint32(c.image.header + r2rMajor)
	if err != nil {
		return DebugInfo{}, err
	}
	i, f, ok, err := m.searchR2R(c.image, uint64(c.MethodStart-c.Base))
	if err != nil {
		return DebugInfo{}, err
	}
	if !ok || c.Base+arch.Addr(f.begin) != c.MethodStart {
		return DebugInfo{}, corrupt("no function table entry for the method at %v", c.MethodStart)
	}
	a := nativeArray{mem: m.mem, begin: c.Base + arch.Addr(rva), end: c.Base + arch.Addr(rva) + arch.Addr(size)}
	at, ok, err := a.entry(uint32(i))
	if err != nil || !ok {
		return DebugInfo{}, err
	}
	// Methods with equal debug info share the info: the entry has the distance back to the info.
	back, n, err := a.unsigned(at)
	if err != nil {
		return DebugInfo{}, err
	}
	if back == 0 {
		return DebugInfo{at + arch.Addr(n), uint16(version)}, nil
	}
	if arch.Addr(back) > at-a.begin {
		return DebugInfo{}, corrupt("the debug info of the method at %v lies outside its section", c.MethodStart)
	}
	return DebugInfo{at - arch.Addr(back), uint16(version)}, nil
}
