package types

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

const (
	tableAt = arch.Addr(0x10000)
	canonAt = arch.Addr(0x11000)
	classAt = arch.Addr(0x12000)
	elemAt  = arch.Addr(0x13000)
)

// An array's rank is in the array's class in .NET 10; in .NET 11 the array's size tells the rank.
func TestArray(t *testing.T) { clrtest.OnEach(t, testArray) }

func testArray(t *testing.T, d *contract.Descriptor) {
	const header = 24 // of an array object: MethodTable, length, and the word before the object
	baseSize, ok := d.Offset("MethodTable", "BaseSize")
	if !ok {
		t.Fatal("no BaseSize")
	}
	for _, tt := range []struct {
		rank  int
		size  uint32
		canon bool
		want  Type
	}{
		{1, header, false, Type{Kind: SZArray, Rank: 1, Elem: elemAt}},
		{1, header + 8, false, Type{Kind: Array, Rank: 1, Elem: elemAt}},
		{2, header + 16, false, Type{Kind: Array, Rank: 2, Elem: elemAt}},
		{3, header + 24, true, Type{Kind: Array, Rank: 3, Elem: elemAt}},
		{32, header + 256, false, Type{Kind: Array, Rank: 32, Elem: elemAt}},
		{0, header, false, Type{Kind: Array}},
		{33, header + 264, false, Type{Kind: Array}},
	} {
		mem := clrtest.Words{}
		s, err := New(mem, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []arch.Addr{tableAt, canonAt, classAt} {
			mem.Zero(at, 128)
		}
		flags := uint32(flagComponentSize | categoryArray)
		if tt.want.Kind == SZArray {
			flags |= flagSZArray
		}
		mem.Uint32(tableAt+arch.Addr(s.l.Flags), flags)
		mem.Uint32(tableAt+arch.Addr(baseSize), tt.size)
		mem[tableAt+arch.Addr(s.l.PerInst)] = uint64(elemAt)
		mem[tableAt+arch.Addr(s.l.Class)] = uint64(classAt)
		if tt.canon {
			mem[tableAt+arch.Addr(s.l.Class)] = uint64(canonAt | canonTag)
			mem[canonAt+arch.Addr(s.l.Class)] = uint64(classAt)
		}
		if s.l.Rank != contract.Absent {
			mem.Uint32(classAt+arch.Addr(s.l.Rank), uint32(tt.rank))
		}
		got, err := s.Read(tableAt)
		if tt.want.Rank == 0 {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("rank %d: %+v, %v", tt.rank, got, err)
			}
			continue
		}
		if err != nil || got.Kind != tt.want.Kind || got.Rank != tt.want.Rank || got.Elem != tt.want.Elem {
			t.Errorf("rank %d: %+v, %v", tt.rank, got, err)
		}
	}
}

// No array has these sizes.
func TestArraySize(t *testing.T) {
	mem := clrtest.Words{}
	s := &System{mem: target.NewReader(mem), size: sizeLayout{BaseSize: 4, ArrayBase: 24}}
	for _, size := range []uint32{0, 16, 23, 28, 41} {
		mem.Uint32(tableAt+4, size)
		if rank, err := s.sizeRank(tableAt); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: rank %d, %v", size, rank, err)
		}
	}
}
