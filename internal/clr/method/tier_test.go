package method

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
)

const (
	descAt   = arch.Addr(0x10000)
	moduleAt = arch.Addr(0x11000)
	dataAt   = arch.Addr(0x12000)
	stateAt  = arch.Addr(0x13000)
	nodeAt   = arch.Addr(0x14000)
	firstIP  = arch.Addr(0x7f00_0000_1000) // code of the default version
	nodeIP   = arch.Addr(0x7f00_0000_2000)
)

func TestTier(t *testing.T) { clrtest.OnEach(t, testTier) }

func testTier(t *testing.T, d *contract.Descriptor) {
	const unknown = ^uint32(0)
	mem := clrtest.Words{}
	ts, err := types.New(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(mem, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []arch.Addr{descAt, moduleAt, dataAt, stateAt, nodeAt} {
		mem.Zero(at, 4096)
	}
	mem[descAt+arch.Addr(r.data.CodeData)] = uint64(dataAt)
	mem[dataAt+arch.Addr(r.data.Versioning)] = uint64(stateAt)
	mem[stateAt+arch.Addr(r.l.FirstNode)] = uint64(nodeAt)
	mem[nodeAt+arch.Addr(r.l.NodeCode)] = uint64(nodeIP)

	tiered := Method{Desc: descAt, Module: moduleAt, flags3: flagTiered}
	once := Method{Desc: descAt, Module: moduleAt}
	tier := func(m *Method, ip arch.Addr) Tier {
		got, err := r.Tier(m, &codemap.Code{Kind: codemap.JIT, MethodStart: ip})
		if err != nil {
			t.Error(err)
		}
		return got
	}
	for n, want := range append(tiers[:], TierUnknown) {
		mem.Uint32(nodeAt+arch.Addr(r.l.NodeTier), uint32(n))
		if got := tier(&tiered, nodeIP); got != want {
			t.Errorf("node of tier %d: %q, want %q", n, got, want)
		}
	}
	if r.data.FirstTier == contract.Absent {
		if got := tier(&tiered, firstIP); got != Tier0 {
			t.Errorf("the default version: %q", got)
		}
	} else {
		for n, want := range map[uint32]Tier{0: Tier0, 1: Tier1, 3: TierOptimized, 4: Tier0Instr, unknown: Tier0} {
			mem.Uint32(dataAt+arch.Addr(r.data.FirstTier), n)
			if got := tier(&tiered, firstIP); got != want {
				t.Errorf("the default version, of tier %d: %q, want %q", n, got, want)
			}
		}
	}
	if got := tier(&once, firstIP); got != TierMinOpts {
		t.Errorf("compiled once, in a debug build: %q", got)
	}
	mem.Uint32(moduleAt+arch.Addr(r.l.ModFlags), moduleOptimizes)
	if got := tier(&once, firstIP); got != TierOptimized {
		t.Errorf("compiled once: %q", got)
	}
	mem[descAt+arch.Addr(r.data.CodeData)] = 0
	if got := tier(&tiered, firstIP); got != Tier0 {
		t.Errorf("without code data: %q", got)
	}
}
