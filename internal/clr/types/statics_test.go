package types

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// All elements of a map of classes count towards the bound, empty elements, too.
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

// A circular chain of generic classes ends, even without a MethodTable in the chain.
func TestInstantiationsBounded(t *testing.T) {
	const module, table, heads, entry = arch.Addr(0x20000), arch.Addr(0x30000), arch.Addr(0x40000), arch.Addr(0x50000)
	mem := clrtest.Words{}
	s, err := New(mem, clrtest.Descriptor(t, clrtest.Net10))
	if err != nil {
		t.Fatal(err)
	}
	l := &s.statics
	mem[module+arch.Addr(l.Types)] = uint64(table)
	mem[table+arch.Addr(l.Heads)] = uint64(heads)
	mem[heads], mem[heads+8*firstBucket] = 1, uint64(entry)
	mem[entry+arch.Addr(l.Entry)], mem[entry+arch.Addr(l.After)] = uint64(tableAt), endOfChain
	if got, err := s.Instantiations(module); err != nil || len(got) != 1 || got[0] != tableAt {
		t.Errorf("%v, %v", got, err)
	}
	mem[entry+arch.Addr(l.Entry)], mem[entry+arch.Addr(l.After)] = uint64(tableAt)|descHandle, uint64(entry)
	if got, err := s.Instantiations(module); !errors.Is(err, ErrCorrupt) || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}
