package inlining

import (
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// TestModules: the list of assemblies has DomainAssemblies, and from .NET 11 on the Assemblies themselves.
func TestModules(t *testing.T) { clrtest.OnEach(t, testModules) }

func testModules(t *testing.T, d *contract.Descriptor) {
	const (
		domain   = arch.Addr(0x10000)
		block    = arch.Addr(0x20000)
		element  = arch.Addr(0x30000)
		assembly = arch.Addr(0x40000)
		module   = arch.Addr(0x50000)
	)
	mem := clrtest.Words{}
	r := &Reader{mem: target.NewReader(mem)}
	if err := d.Bind(&r.l); err != nil {
		t.Fatal(err)
	}
	direct := r.l.Direct != contract.Absent
	if direct == (r.l.Assemblies != contract.Absent) {
		t.Fatalf("the descriptor has %+v", r.l)
	}
	list := r.l.Assemblies
	if direct {
		list = r.l.Direct
	}
	mem[r.l.AppDomain] = uint64(domain)
	mem.Zero(domain+arch.Addr(list), 64)
	mem.Uint32(domain+arch.Addr(list+r.l.ListCount), 3)
	first := domain + arch.Addr(list+r.l.ListFirst)
	mem.Zero(first, 256)
	mem.Uint32(first+arch.Addr(r.l.BlockSize), 2)
	mem[first+arch.Addr(r.l.BlockNext)] = uint64(block)
	mem.Zero(block, 256)
	mem.Uint32(block+arch.Addr(r.l.BlockSize), 4)
	at := []arch.Addr{
		first + arch.Addr(r.l.BlockStart), first + arch.Addr(r.l.BlockStart) + 8, block + arch.Addr(r.l.BlockStart),
	}
	for i, a := range []arch.Addr{0, 2} { // the second one is empty
		of, to := assembly+0x100*arch.Addr(i), module+0x100*arch.Addr(i)
		mem[at[a]] = uint64(of)
		if !direct {
			mem[at[a]] = uint64(element + 0x100*arch.Addr(i))
			mem[element+0x100*arch.Addr(i)] = uint64(of)
		}
		mem[of+arch.Addr(r.l.AsmModule)] = uint64(to)
	}
	got, err := r.Modules()
	if want := []arch.Addr{module, module + 0x100}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
