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

// made is the heap of a made-up runtime: two generations. The first generation has the segment that is being
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
		mem.Zero(at, tableNode.len())
		for off, v := range map[uint32]arch.Addr{tableNode.Mem: start, tableNode.Allocated: end,
			tableNode.Reserved: reserved, tableNode.Next: next} {
			mem[at+arch.Addr(off)] = uint64(v)
		}
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
		mem := r.mem
		if err := r.Begin(mem); err != nil {
			t.Fatal(err)
		}
		got := r.segments
		want := []Segment{
			{Start: 0x1_0000, End: 0x1_0100}, {Start: 0x2_0000, End: 0x2_0800}, {Start: 0x5_0000, End: 0x5_1000},
		}
		if len(got) != len(want) {
			t.Fatalf("%v", got)
		}
		for i := range want {
			if got[i].Start != want[i].Start || got[i].End != want[i].End {
				t.Errorf("%v, want %v", got[i], want[i])
			}
		}
		for at, want := range map[arch.Addr]bool{
			0x1_0000: true, 0x1_00f8: true, 0x1_0100: false, 0xfff8: false, 0x2_07f8: true, 0x2_0800: false,
			0x5_0ff8: true, 0x5_1000: false,
		} {
			if r.Contains(at) != want {
				t.Errorf("Contains(%v) is %v", at, !want)
			}
		}
	}
	if (&Reader{}).Contains(0x1000) {
		t.Error("no segment has an object")
	}
}

// A table with another version, or with impossible values, is not read.
func TestSegmentsRefused(t *testing.T) {
	for name, spoil := range map[string]func(clrtest.Words){
		"version":     func(m clrtest.Words) { m[varsAt] = 3 },
		"generations": func(m clrtest.Words) { m[varsAt+varGenerations] = 1 << 40 },
		"size":        func(m clrtest.Words) { m[varsAt+varGenerationSize] = 1 << 40 },
		"offset":      func(m clrtest.Words) { m.Uint32(listAt+4, 0xffff_ffff) },
		"no table":    func(m clrtest.Words) { m[varsAt+varGenerationTable] = 0 },
		"upside down": func(m clrtest.Words) { m[segsAt+0x100] = 0x4_0000 },
		"too long":    func(m clrtest.Words) { m[segsAt+0x100] = 0x7_0000 },
		"circle":      func(m clrtest.Words) { m[segsAt+0x200+arch.Addr(tableNode.Next)] = uint64(segsAt + 0x100) },
		"heaps":       func(m clrtest.Words) { m[varsAt+varHeapCount] = uint64(listAt); m[listAt] = 1 << 20 },
	} {
		mem := clrtest.Words{}
		r := made(t, mem, false)
		spoil(mem)
		if err := r.Begin(mem); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v, %v", name, r.segments, err)
		}
	}
	r, err := New(clrtest.Words{}, &contract.Descriptor{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(nil); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

const (
	tableOfObject = arch.Addr(0x7400_0000) // 24 bytes
	tableOfArray  = arch.Addr(0x7400_1000) // 24 bytes, and four for each element
)

// objects fills the segment of the older generation: an object, an array of three elements, a piece of an allocation
// context, an object with a word in front, and free space that looks like an array with an object inside.
func objects(r *Reader, mem clrtest.Words) []Segment {
	for at, flags := range map[arch.Addr]uint32{tableOfObject: 0, tableOfArray: hasComponents | 4} {
		mem.Zero(at, 64)
		mem.Uint32(at+arch.Addr(r.l.Flags), flags)
		mem.Uint32(at+arch.Addr(r.l.BaseSize), 24)
	}
	s := Segment{Start: 0x5_0000, End: 0x5_0100}
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
	r = made(t, mem, false)
	mem[varsAt+varInvalid] = uint64(listAt)
	mem[varsAt] = 0x0103
	if r.Known() || r.Settled(mem) {
		t.Error("a table of another version")
	}
	r = made(t, mem, false)
	mem[varsAt+varInvalid] = uint64(listAt)
	for reasons, want := range map[uint64]bool{0: true, 1: false, 2: false} {
		mem[listAt] = reasons
		if r.Settled(mem) != want {
			t.Errorf("%d reasons: %v", reasons, !want)
		}
	}
}

// at has the reader believe that the heap is the given segments, and that nothing grows.
func (r *Reader) at(segments ...Segment) {
	r.drop()
	r.looks++
	r.left, r.still, r.segments = maxLook, true, segments
}

func isObject(r *Reader, at arch.Addr) bool {
	is, known := r.IsObject(at)
	return is && known
}

func TestIsObject(t *testing.T) {
	mem := clrtest.Words{}
	r := made(t, mem, false)
	segments := objects(r, mem)
	want := map[arch.Addr]bool{0x5_0000: true, 0x5_0018: true, 0x5_0080: true, 0x5_0098: true}
	for _, down := range []bool{false, true} { // whatever is asked for first
		r.at(segments...)
		for n := arch.Addr(0); n < 0x120; n += 4 {
			at := 0x4_fff0 + n
			if down {
				at = 0x5_0110 - n
			}
			if got, known := r.IsObject(at); got != want[at] || !known {
				t.Errorf("IsObject(%v) is %v, %v", at, got, known)
			}
		}
	}
	// The remains of a collection in the unused half of the word in front of an object are no object.
	r.at(segments...)
	mem[0x5_0078] = 0x0800_0011<<32 | 1
	if is, known := r.IsObject(0x5_0098); !is || !known {
		t.Errorf("behind a word that is no MethodTable: %v, %v", is, known)
	}
	// Later, objects lie where nothing was: between others and behind them.
	r.at(segments...)
	if !isObject(r, 0x5_0098) {
		t.Fatal("the last one")
	}
	mem[0x5_0040] = uint64(tableOfObject)
	mem[0x5_00f0] = uint64(tableOfObject)
	mem.Zero(0x5_00f8, 24)
	r.segments[0].End = 0x5_0108
	for _, at := range []arch.Addr{0x5_0040, 0x5_00f0} {
		if !isObject(r, at) {
			t.Errorf("%v has become an object", at)
		}
	}
}

// An array that was being made when it was looked at, with an empty allocation context behind, is larger later.
func TestIsObjectGrows(t *testing.T) {
	mem := clrtest.Words{}
	r := made(t, mem, false)
	segments := objects(r, mem)
	mem.Zero(0x5_0000, 0x100)
	mem[0x5_0000] = uint64(tableOfArray)
	mem[0x5_0080], mem[0x5_0098] = uint64(tableOfObject), uint64(tableOfObject)
	r.at(segments...)
	if !isObject(r, 0x5_0080) || !isObject(r, 0x5_0098) {
		t.Fatal("behind an empty context")
	}
	mem[0x5_0008] = 28 // up to 0x88: the apparent object at 0x80 is in the array
	mem[0x5_0088] = uint64(tableOfObject)
	r.looks++
	for at, want := range map[arch.Addr]bool{0x5_0080: false, 0x5_0088: true} {
		if isObject(r, at) != want {
			t.Errorf("%v", at)
		}
	}
}

// Without a collection, the walk of an earlier look goes on. A collection ends the walk.
func TestBegin(t *testing.T) {
	for _, server := range []bool{false, true} {
		mem := clrtest.Words{}
		r := made(t, mem, server)
		mem[varsAt+varInvalid] = uint64(listAt + 0x800)
		mem[listAt+0x800] = 0
		objects(r, mem)
		mem.Zero(0x5_0100, 0xf00)
		begin := func() {
			t.Helper()
			if err := r.Begin(mem); err != nil {
				t.Fatal(err)
			}
		}
		begin()
		if !isObject(r, 0x5_0080) || !r.Stands(mem) {
			t.Error("an object")
		}
		spent := r.budget
		if begin(); !isObject(r, 0x5_0080) || r.budget != spent {
			t.Error("walked again")
		}
		generations := tableAt
		if server {
			generations += 512
		}
		mem[generations+genSize+8]++
		if r.Stands(mem) {
			t.Error("there has been a collection")
		}
		if begin(); !isObject(r, 0x5_0080) || r.budget == spent || !r.Stands(mem) {
			t.Error("not walked again")
		}
		if mem[listAt+0x800] = 1; r.Stands(mem) {
			t.Error("a collection goes on")
		}
		// The segment that is being allocated from grows; so does a segment whose new end the collector has not told
		// yet.
		mem[listAt+0x800] = 0
		if server {
			mem[tableAt] = 0x2_0900
		} else {
			mem[listAt+varAllocAllocated] = 0x2_0900
		}
		mem[segsAt+0x100+arch.Addr(tableNode.Allocated)] = 0x5_2000
		if begin(); !r.Contains(0x2_08f8) || r.Contains(0x2_0900) || !r.Contains(0x5_1ff8) || r.Contains(0x5_2000) {
			t.Errorf("%v", r.segments)
		}
	}
}

// A segment whose objects make no sense has no objects from there on. Where there is too much to read, the answer is
// not known.
func TestIsObjectRefused(t *testing.T) {
	mem := clrtest.Words{}
	r := made(t, mem, false)
	segments := objects(r, mem)
	mem.Uint32(tableOfArray+arch.Addr(r.l.BaseSize), 2)
	r.at(segments...)
	if is, known := r.IsObject(0x5_0080); !isObject(r, 0x5_0000) || is || known {
		t.Error("an array of a size that none has")
	}
	mem[0x5_0020] = 1 << 40
	r.at(segments...)
	if _, known := r.IsObject(0x5_0080); known {
		t.Error("an array beyond the segment")
	}
	r.at(segments...)
	r.left = 8
	if _, known := r.IsObject(0x5_0000); known {
		t.Error("beyond what one look may read")
	}
	r.at(segments...)
	r.budget = 8
	if _, known := r.IsObject(0x5_0000); known {
		t.Error("beyond the budget")
	}
	if r.Refill(); !isObject(r, 0x5_0000) {
		t.Error("the next snapshot")
	}
}

// FuzzIsObject: whatever a segment contains, a walk ends, and finds objects within the segment only.
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
		r.at(segments...)
		r.Refill()
		for at := arch.Addr(0x4_fff8); at < 0x5_0110; at += 8 {
			if isObject(r, at) && !r.Contains(at) {
				t.Errorf("%v", at)
			}
		}
		r.looks++
		for at := arch.Addr(0x5_0110); at > 0x4_fff8; at -= 8 {
			if isObject(r, at) && !r.Contains(at) {
				t.Errorf("%v", at)
			}
		}
	})
}
