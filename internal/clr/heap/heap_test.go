package heap

import (
	"encoding/binary"
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

const (
	tableOfObject = arch.Addr(0x7400_0000) // 24 bytes
	tableOfArray  = arch.Addr(0x7400_1000) // 24 bytes, and four for each element
)

// objects fills the segment of the older generation: an object, an array of three elements, a piece of an
// allocation context, an object with a word in front of it, and free space that looks like one with an object.
func objects(r *Reader, mem clrtest.Words) []Segment {
	for at, flags := range map[arch.Addr]uint32{tableOfObject: 0, tableOfArray: hasComponents | 4} {
		mem.Zero(at, 64)
		mem.Uint32(at+arch.Addr(r.l.Flags), flags)
		mem.Uint32(at+arch.Addr(r.l.BaseSize), 24)
	}
	s := Segment{0x5_0000, 0x5_0100}
	mem.Zero(s.Start, 0x100)
	mem[s.Start] = uint64(tableOfObject) | 1 // marked
	mem[s.Start+24] = uint64(tableOfArray)
	mem[s.Start+32] = 3 // 36 bytes, so 40
	mem[s.Start+0x78] = 0x0800_0011 << 32
	mem[s.Start+0x80] = uint64(tableOfObject)
	mem[s.Start+0x98] = uint64(tableOfArray)
	mem[s.Start+0xa0] = 16 // up to 0xf0
	mem[s.Start+0xc0] = uint64(tableOfObject)
	return []Segment{s}
}

func TestSettled(t *testing.T) {
	mem := clrtest.Words{}
	r := made(t, mem, false)
	if r.Settled(mem) {
		t.Error("the table lacks it")
	}
	mem[varsAt+varInvalid] = uint64(listAt)
	version := mem[varsAt]
	mem[varsAt] = 0x0103
	if r.Known() || r.Settled(mem) {
		t.Error("a table of another version")
	}
	mem[varsAt] = version
	for reasons, want := range map[uint64]bool{0: true, 1: false, 2: false} {
		mem[listAt] = reasons
		if r.Settled(mem) != want {
			t.Errorf("%d reasons: %v", reasons, !want)
		}
	}
}

func TestIsObject(t *testing.T) {
	mem := clrtest.Words{}
	r := made(t, mem, false)
	segments := objects(r, mem)
	want := map[arch.Addr]bool{0x5_0000: true, 0x5_0018: true, 0x5_0080: true, 0x5_0098: true}
	for at := arch.Addr(0x4_fff0); at < 0x5_0110; at += 4 {
		if got := r.IsObject(segments, at); got != want[at] {
			t.Errorf("IsObject(%v) is %v", at, got)
		}
	}
	// What has been walked counts until it is looked at again.
	mem[0x5_0080] = 0
	if !r.IsObject(segments, 0x5_0080) {
		t.Error("nothing has been looked at again")
	}
	mem[0x5_00f0] = uint64(tableOfObject)
	segments[0].End = 0x5_0108
	mem.Zero(0x5_00f8, 24)
	if r.IsObject(segments, 0x5_00f0) {
		t.Error("the segment was not walked again")
	}
	if r.Begin(false); !r.IsObject(segments, 0x5_00f0) || r.IsObject(segments, 0x5_0080) {
		t.Error("the segment was walked again")
	}
}

// A segment that is too large, or whose objects make no sense, has no objects from there on.
func TestIsObjectRefused(t *testing.T) {
	mem := clrtest.Words{}
	r := made(t, mem, false)
	segments := objects(r, mem)
	mem.Uint32(tableOfArray+arch.Addr(r.l.BaseSize), 8)
	if !r.IsObject(segments, 0x5_0000) || r.IsObject(segments, 0x5_0080) {
		t.Error("an array of a size that none has")
	}
	mem[0x5_0020] = 1 << 40
	if r.Begin(true); r.IsObject(segments, 0x5_0080) {
		t.Error("an array beyond the segment")
	}
	if r.Begin(true); r.IsObject([]Segment{{0x5_0000, 0x5_0000 + maxWalk + 8}}, 0x5_0000) {
		t.Error("too large")
	}
	if r.budget = 8; r.IsObject(segments, 0x5_0000) {
		t.Error("beyond the budget")
	}
}

// FuzzIsObject: whatever a segment has, a walk ends, and finds objects within the segment only.
func FuzzIsObject(f *testing.F) {
	mem := clrtest.Words{}
	r := made(f, mem, false)
	segments := objects(r, mem)
	seed := make([]byte, 0x100)
	if err := mem.ReadMemory(seed, segments[0].Start); err != nil {
		f.Fatal(err)
	}
	f.Add(seed, uint32(24), uint32(hasComponents|4))
	f.Fuzz(func(t *testing.T, data []byte, base, flags uint32) {
		for i := 0; i+8 <= len(data) && i < 0x100; i += 8 {
			mem[0x5_0000+arch.Addr(i)] = binary.LittleEndian.Uint64(data[i:])
		}
		mem.Uint32(tableOfArray+arch.Addr(r.l.Flags), flags)
		mem.Uint32(tableOfArray+arch.Addr(r.l.BaseSize), base)
		r.Begin(true)
		for at := arch.Addr(0x4_fff8); at < 0x5_0110; at += 8 {
			if r.IsObject(segments, at) && !Contains(segments, at) {
				t.Errorf("%v", at)
			}
		}
	})
}
