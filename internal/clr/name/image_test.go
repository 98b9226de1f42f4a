package name

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/target"
)

// namerOf returns the Namer of a runtime in mem.
func namerOf(t *testing.T, mem target.Memory, runtime string) *Namer {
	t.Helper()
	d := clrtest.Descriptor(t, runtime)
	ts, err := types.New(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := method.New(mem, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(mem, d, ts, ms)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A module of .NET 8 leads to its image by its PEAssembly. A module without an image has metadata in a buffer.
func TestAssemblyID(t *testing.T) {
	const (
		moduleAt   = arch.Addr(0x10000)
		assemblyAt = arch.Addr(0x11000)
		imageAt    = arch.Addr(0x12000)
		layoutAt   = arch.Addr(0x13000)
		bufferAt   = arch.Addr(0x14000)
		baseAt     = arch.Addr(0x7f00_0000_0000)
		metadataAt = arch.Addr(0x7f00_0001_0000)
	)
	mem := clrtest.Words{}
	n := namerOf(t, mem, clrtest.Net8)
	l := &n.assemblyL
	mem[moduleAt+arch.Addr(l.PEAssembly)] = uint64(assemblyAt)
	mem[assemblyAt+arch.Addr(l.Image)] = uint64(imageAt)
	mem[imageAt+arch.Addr(l.Loaded)] = uint64(layoutAt)
	mem[layoutAt+arch.Addr(l.Base)] = uint64(baseAt)
	mem[moduleAt+arch.Addr(l.Dynamic)] = uint64(bufferAt) // the Module lacks this field
	mem.Uint32(bufferAt+arch.Addr(l.BufferSize), 416)
	mem[bufferAt+arch.Addr(l.BufferData)] = uint64(metadataAt)
	want := func(what string, want moduleID) {
		t.Helper()
		if got, err := n.identify(moduleAt); got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	want("an image", moduleID{base: baseAt})
	mem[imageAt+arch.Addr(l.Loaded)] = 0
	want("not loaded yet", moduleID{})
	mem[assemblyAt+arch.Addr(l.Image)] = 0
	want("emitted", moduleID{metadata: metadataAt, size: 416})
	mem[moduleAt+arch.Addr(l.Dynamic)] = 0
	want("nothing emitted yet", moduleID{})
	delete(mem, assemblyAt+arch.Addr(l.Image))
	if got, err := n.identify(moduleAt); err == nil {
		t.Errorf("an unreadable PEAssembly: %+v", got)
	}
}
