package method

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/types"
)

const (
	domainAt = arch.Addr(0x20000)
	statesAt = arch.Addr(0x30000)
)

func newReader8(t *testing.T) (*Reader, clrtest.Words) {
	t.Helper()
	mem, d := clrtest.Words{}, clrtest.Descriptor(t, clrtest.Net8)
	ts, err := types.New(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(mem, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	return r, mem
}

// The versions of .NET 8's methods are in a hash table.
func TestStateTable(t *testing.T) {
	const size = 11
	r, mem := newReader8(t)
	domain := arch.Addr(r.table.AppDomain)
	mem[domain] = uint64(domainAt)
	at := domainAt + arch.Addr(r.table.States)
	mem[at+arch.Addr(r.table.Table)] = uint64(statesAt)
	mem.Zero(at+arch.Addr(r.table.Size), 8)
	mem.Uint32(at+arch.Addr(r.table.Size), size)
	mem.Zero(statesAt, 8*size)

	// Three methods that begin at the same place of the table and go on differently.
	place := func(desc arch.Addr, try uint32) arch.Addr {
		h := uint32(desc)
		return statesAt + 8*arch.Addr((h%size+try*(h%(size-1)+1))%size)
	}
	methods := []arch.Addr{0x1_0000_0058, 0x1_0000_00b0, 0x1_0000_0108}
	states := []arch.Addr{0x40000, 0x41000, 0x42000}
	for try, desc := range methods {
		if first := place(desc, 0); first != place(methods[0], 0) {
			t.Fatalf("%v begins at %v", desc, first)
		}
		mem[place(desc, uint32(min(try, 1)))] = uint64(states[try])
		mem[states[try]+arch.Addr(r.table.Method)] = uint64(desc)
	}
	for i, desc := range methods {
		if got, err := r.tableState(desc); got != states[i] || err != nil {
			t.Errorf("%v: %v, %v, want %v", desc, got, err, states[i])
		}
	}
	if got, err := r.tableState(0x1_0000_0160); got != 0 || err != nil {
		t.Errorf("a method that is not in the table: %v, %v", got, err)
	}
	mem[place(methods[0], 0)] = uint64(deletedState)
	if got, err := r.tableState(methods[1]); got != states[1] || err != nil {
		t.Errorf("behind a deleted one: %v, %v", got, err)
	}
	for i := range arch.Addr(size) {
		mem[statesAt+8*i] = uint64(states[2])
	}
	if got, err := r.tableState(methods[0]); got != 0 || err != nil {
		t.Errorf("a full table without the method: %v, %v", got, err)
	}
	for _, n := range []uint32{0, 1, maxStates + 1} {
		mem.Uint32(at+arch.Addr(r.table.Size), n)
		if got, err := r.tableState(methods[0]); got != 0 || err != nil {
			t.Errorf("a table of %d: %v, %v", n, got, err)
		}
	}
	mem[domain] = 0
	if got, err := r.tableState(methods[0]); got != 0 || err != nil {
		t.Errorf("before there is an AppDomain: %v, %v", got, err)
	}
}

// Methods that ask for aggressive optimization are optimized at once on .NET 8, as tier 1.
func TestAggressiveTier(t *testing.T) {
	r, mem := newReader8(t)
	mem[arch.Addr(r.table.AppDomain)] = 0
	m := Method{Desc: descAt, Module: moduleAt, flags3: flagTiered}
	tier := func() (Tier, error) {
		return r.Tier(&m, &codemap.Code{Kind: codemap.JIT, MethodStart: firstIP})
	}
	if got, err := tier(); got != Tier0 || err != nil {
		t.Errorf("without attributes: %q, %v", got, err)
	}
	unreadable := errors.New("unreadable")
	for _, tt := range []struct {
		flags uint16
		err   error
		want  Tier
	}{
		{0, nil, Tier0}, {0x8, nil, Tier0}, {0x200, nil, Tier1}, {0x208, nil, Tier1}, {0, unreadable, TierUnknown},
	} {
		r.Attributes = func(*Method) (uint16, error) { return tt.flags, tt.err }
		if got, err := tier(); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("attributes %#x, %v: %q, %v", tt.flags, tt.err, got, err)
		}
	}
}
