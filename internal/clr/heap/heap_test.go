package heap

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
)

const (
	varsAt   = arch.Addr(0x7000_0000)
	listAt   = arch.Addr(0x7100_0000)
	tableAt  = arch.Addr(0x7200_0000)
	segsAt   = arch.Addr(0x7300_0000)
	genSize  = 256
	firstSeg = 56
)

// made is the heap of a runtime that is made up: two generations, the first with the segment that is being
// allocated from.
func made(t testing.TB, mem clrtest.Words, server bool) *Reader {
	t.Helper()
	r, err := New(mem, clrtest.Descriptor(t, clrtest.Net10))
	if err != nil {
		t.Fatal(err)
	}
	mem[r.l.Vars] = uint64(varsAt)
	mem.Zero(varsAt, 256)
	mem[varsAt] = 2 | 4<<8
	mem[varsAt+varGenerationSize], mem[varsAt+varGenerations] = genSize, 2
	mem[varsAt+varGenerationFields] = uint64(listAt)
	mem.Zero(listAt, 256)
	mem.Uint32(listAt+4, firstSeg)
	mem.Zero(tableAt, 2048)
	generations := tableAt
	variable := func(off arch.Addr, value uint64) {
		mem[varsAt+off] = uint64(listAt + off)
		mem[listAt+off] = value
	}
	if server {
		generations = tableAt + 512
		variable(varHeapCount, 1)
		variable(varHeaps, uint64(tableAt+1024))
		mem[tableAt+1024] = uint64(tableAt)
		fields := listAt + 0x400
		mem[varsAt+varHeapFields] = uint64(fields)
		mem.Zero(fields, 128)
		mem.Uint32(fields+4*heapGenerationTable, 512)
		mem.Uint32(fields+4*heapEphemeral, 8)
		mem[tableAt+8], mem[tableAt] = uint64(segsAt), 0x2_0800
	} else {
		mem[varsAt+varGenerationTable] = uint64(tableAt)
		variable(varEphemeral, uint64(segsAt))
		variable(varAllocAllocated, 0x2_0800)
	}
	segment := func(at, start, end, reserved, next arch.Addr) {
		mem.Zero(at, segmentLen)
		mem[at+segmentMem], mem[at], mem[at+segmentReserved] = uint64(start), uint64(end), uint64(reserved)
		mem[at+segmentNext] = uint64(next)
	}
	segment(segsAt, 0x2_0000, 0x2_0000, 0x3_0000, 0)
	segment(segsAt+0x100, 0x5_0000, 0x5_1000, 0x6_0000, segsAt+0x200)
	segment(segsAt+0x200, 0x1_0000, 0x1_0100, 0x2_0000, 0)
	mem[generations+firstSeg], mem[generations+genSize+firstSeg] = uint64(segsAt), uint64(segsAt+0x100)
	return r
}

func TestSegments(t *testing.T) {
	for _, server := range []bool{false, true} {
		r := made(t, clrtest.Words{}, server)
		got, err := r.Segments()
		if err != nil {
			t.Fatal(err)
		}
		want := []Segment{{0x1_0000, 0x1_0100}, {0x2_0000, 0x2_0800}, {0x5_0000, 0x5_1000}}
		if len(got) != len(want) {
			t.Fatalf("%v", got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v, want %v", got[i], want[i])
			}
		}
		for at, want := range map[arch.Addr]bool{
			0x1_0000: true, 0x1_00f8: true, 0x1_0100: false, 0xfff8: false, 0x2_07f8: true, 0x2_0800: false,
			0x5_0ff8: true, 0x5_1000: false,
		} {
			if Contains(got, at) != want {
				t.Errorf("Contains(%v) is %v", at, !want)
			}
		}
	}
	if Contains(nil, 0x1000) {
		t.Error("no segment has an object")
	}
}

// A table that is of another version, or makes no sense, is not read.
func TestSegmentsRefused(t *testing.T) {
	for name, spoil := range map[string]func(clrtest.Words){
		"version":     func(m clrtest.Words) { m[varsAt] = 3 },
		"generations": func(m clrtest.Words) { m[varsAt+varGenerations] = 1 << 40 },
		"size":        func(m clrtest.Words) { m[varsAt+varGenerationSize] = 1 << 40 },
		"offset":      func(m clrtest.Words) { m.Uint32(listAt+4, 0xffff_ffff) },
		"no table":    func(m clrtest.Words) { m[varsAt+varGenerationTable] = 0 },
		"upside down": func(m clrtest.Words) { m[segsAt+0x100] = 0x4_0000 },
		"too long":    func(m clrtest.Words) { m[segsAt+0x100] = 0x7_0000 },
		"circle":      func(m clrtest.Words) { m[segsAt+0x200+segmentNext] = uint64(segsAt + 0x100) },
		"heaps":       func(m clrtest.Words) { m[varsAt+varHeapCount] = uint64(listAt); m[listAt] = 1 << 20 },
	} {
		mem := clrtest.Words{}
		r := made(t, mem, false)
		spoil(mem)
		if s, err := r.Segments(); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	r, err := New(clrtest.Words{}, &contract.Descriptor{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Segments(); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}
