package codemap

import (
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
)

// The JIT's exception clauses (codeman.h and jitinterface.h, EE_ILEXCEPTION):
// the code header points at them; the word before the clauses' section header
// holds their number; the section header has 8 bytes. A ReadyToRun image has a
// table of (method RVA, clauses RVA) pairs instead (readytorun.h,
// READYTORUN_SECTION_EXCEPTION_INFO).
const (
	ehHeader     = 8
	ehFilterFlag = 1 // COR_ILEXCEPTION_CLAUSE_FILTER (corhdr.h)

	jitClauseSize   = 32 // struct EE_ILEXCEPTION_CLAUSE
	jitClauseFilter = 24 // FilterOffset
	r2rClauseSize   = 24 // struct CORCOMPILE_EXCEPTION_CLAUSE
	r2rClauseFilter = 20

	maxClauses = 1 << 14
)

// IsFilter reports whether a funclet is a filter: the expression behind when in a catch clause. A filter runs before
// anything is unwound, and has its own frame, unlike catch and finally bodies.
func (m *Map) IsFilter(c *Code) (bool, error) {
	if !c.Funclet {
		return false, nil
	}
	// A funclet begins at an offset from its method that the clauses repeat.
	offset := uint64(c.Start - c.MethodStart)
	if c.Kind == JIT {
		if m.l.HdrEH == contract.Absent {
			return false, errNoClauses
		}
		eh, err := m.mem.Pointer(c.header + arch.Addr(m.l.HdrEH))
		if err != nil || eh == 0 {
			return false, err
		}
		n, err := m.mem.Uint64(eh - 8)
		if err != nil {
			return false, err
		}
		return m.anyFilter(eh+ehHeader, n, jitClauseSize, jitClauseFilter, offset)
	}
	at, n, err := m.clausesR2R(c)
	if err != nil {
		return false, err
	}
	return m.anyFilter(at, n, r2rClauseSize, r2rClauseFilter, offset)
}

// errNoClauses: without the clauses, filters cannot be told from other funclets.
var errNoClauses = errors.New("the location of this runtime's exception clauses is not known: update clrsnap")

func (m *Map) anyFilter(at arch.Addr, n, size, filterOff, offset uint64) (bool, error) {
	if n > maxClauses {
		return false, corrupt("%d exception clauses at %v", n, at)
	}
	for i := uint64(0); i < n; i++ {
		clause := at + arch.Addr(i*size)
		flags, err := m.mem.Uint32(clause)
		if err != nil {
			return false, err
		}
		if flags&ehFilterFlag == 0 {
			continue
		}
		f, err := m.mem.Uint32(clause + arch.Addr(filterOff))
		if err != nil {
			return false, err
		}
		if uint64(f) == offset {
			return true, nil
		}
	}
	return false, nil
}

// Layout of READYTORUN_HEADER and its section table (readytorun.h): signature,
// two 16-bit versions, flags, number of sections; then for each section type,
// RVA and size.
const (
	r2rSignature     = 0x00525452 // "RTR"
	r2rSectionCount  = 12
	r2rSections      = 16
	r2rSectionSize   = 12
	r2rExceptionInfo = 104
	maxR2RSections   = 256
)

// clausesR2R finds the exception clauses of a ReadyToRun method.
func (m *Map) clausesR2R(c *Code) (arch.Addr, uint64, error) {
	table, size, err := m.r2rSection(c.image, r2rExceptionInfo)
	if err != nil || size == 0 {
		return 0, 0, err
	}
	method := uint64(c.MethodStart - c.Base)
	pair := func(i uint64) arch.Addr { return c.Base + arch.Addr(uint64(table)+8*i) }
	// The last pair is a sentinel, and ends the clauses of the pair before.
	n := uint64(size) / 8
	lo, hi := uint64(0), n
	for lo < hi {
		mid := (lo + hi) / 2
		rva, err := m.mem.Uint32(pair(mid))
		if err != nil {
			return 0, 0, err
		}
		switch {
		case uint64(rva) < method:
			lo = mid + 1
		case uint64(rva) > method:
			hi = mid
		case mid+1 == n:
			return 0, 0, nil
		default:
			from, err := m.mem.Uint32(pair(mid) + 4)
			if err != nil {
				return 0, 0, err
			}
			to, err := m.mem.Uint32(pair(mid+1) + 4)
			if err != nil {
				return 0, 0, err
			}
			if to < from {
				return 0, 0, corrupt("exception clauses of the method at %v end before they begin", c.MethodStart)
			}
			return c.Base + arch.Addr(from), uint64(to-from) / r2rClauseSize, nil
		}
	}
	return 0, 0, nil
}

func (m *Map) r2rSection(im *image, kind uint32) (rva, size uint32, err error) {
	sig, err := m.mem.Uint32(im.header)
	if err != nil {
		return 0, 0, err
	}
	n, err := m.mem.Uint32(im.header + r2rSectionCount)
	if err != nil {
		return 0, 0, err
	}
	if sig != r2rSignature || n > maxR2RSections {
		return 0, 0, corrupt("no ReadyToRun header at %v", im.header)
	}
	for i := range arch.Addr(n) {
		s := im.header + r2rSections + r2rSectionSize*i
		k, err := m.mem.Uint32(s)
		if err != nil {
			return 0, 0, err
		}
		if k != kind {
			continue
		}
		if rva, err = m.mem.Uint32(s + 4); err != nil {
			return 0, 0, err
		}
		size, err = m.mem.Uint32(s + 8)
		return rva, size, err
	}
	return 0, 0, nil
}
