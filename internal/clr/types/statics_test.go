package types

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// A map of classes is bounded by all its elements, also by those that are empty.
func TestDefinedBounded(t *testing.T) {
	const module, table = arch.Addr(0x20000), arch.Addr(0x30000)
	mem := clrtest.Words{}
	s, err := New(mem, clrtest.Descriptor(t, clrtest.Net10))
	if err != nil {
		t.Fatal(err)
	}
	l := &s.statics
	at := module + arch.Addr(l.Map)
	mem.Zero(at, 64)
	mem.Zero(table, 64)
	mem[table+8] = uint64(tableAt) | 1
	mem[at+arch.Addr(l.Table)] = uint64(table)
	mem.Uint32(at+arch.Addr(l.Count), 8)
	if got, err := s.Defined(module); err != nil || len(got) != 1 || got[0] != tableAt {
		t.Errorf("%v, %v", got, err)
	}
	mem[at+arch.Addr(l.Next)] = uint64(at) // goes round
	if got, err := s.Defined(module); !errors.Is(err, ErrCorrupt) || len(got) != maxBlocks {
		t.Errorf("%d, %v", len(got), err)
	}
	const many = maxDefined / (maxBlocks - 24)
	mem.Zero(table, 8*many)
	mem[table+8] = uint64(tableAt)
	mem.Uint32(at+arch.Addr(l.Count), many)
	if got, err := s.Defined(module); !errors.Is(err, ErrCorrupt) || len(got) != maxDefined/many {
		t.Errorf("%d, %v", len(got), err)
	}
}
