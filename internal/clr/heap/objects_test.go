package heap

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/target"
)

const (
	freeTable   = arch.Addr(0x7400_2000)
	plainTable  = arch.Addr(0x7400_3000) // 24 bytes
	arrayTable  = arch.Addr(0x7400_4000) // 24 bytes, and four for each element
	noTable     = arch.Addr(0x7400_5000) // looks like a MethodTable, and is none
	threadAt    = arch.Addr(0x7500_0000)
	localsAt    = arch.Addr(0x7500_1000)
	youngStart  = arch.Addr(0x2_0000)
	youngEnd    = arch.Addr(0x2_0800)
	oldStart    = arch.Addr(0x5_0000)
	oldEnd      = arch.Addr(0x5_1000)
	otherStart  = arch.Addr(0x1_0000)
	otherEnd    = arch.Addr(0x1_0100)
	contextNext = youngStart + 0x400
)

// spread is a made-up heap: two generations in three regions, full of objects, with free space, an array, and a
// thread in the middle of its allocation context.
func spread(t testing.TB, mem clrtest.Words) *Reader {
	r := made(t, mem, false)
	mem[varsAt+varInvalid] = uint64(listAt + 0x800)
	mem[listAt+0x800] = 0
	mem.Zero(listAt+4*generationStart, 8)
	mem.Uint32(listAt+4, firstSeg)
	mem.Uint32(listAt+4*generationStart, noField)
	mem[r.l.Free] = uint64(freeTable)
	for at, flags := range map[arch.Addr]uint32{
		freeTable: hasComponents | 1, plainTable: 0, arrayTable: hasComponents | 4, noTable: 0,
	} {
		mem.Zero(at, 64)
		mem.Uint32(at+arch.Addr(r.l.Flags), flags)
		mem.Uint32(at+arch.Addr(r.l.BaseSize), 24)
	}
	fill := func(from, to arch.Addr) {
		mem.Zero(from-8, int(to-from)+8)
		for at := from; at < to; at += 32 {
			put(mem, at, arrayTable, 2) // 32 bytes
		}
	}
	fill(youngStart, youngEnd)
	fill(oldStart, oldEnd)
	fill(otherStart, otherEnd)
	put(mem, oldStart+32, freeTable, 8)
	put(mem, oldStart+64, plainTable|1, 0) // marked
	put(mem, oldStart+64+24, freeTable, 32+8-24)
	mem.Zero(contextNext, 0x80) // 104 bytes are left, and the gap
	mem.Zero(threadAt, 1024)
	mem.Zero(localsAt, 64)
	mem[threadAt+arch.Addr(r.contexts.Locals)] = uint64(localsAt)
	context := localsAt + arch.Addr(r.contexts.Outer+r.contexts.Inner)
	mem[context], mem[context+contextLimit] = uint64(contextNext), uint64(contextNext+0x80-contextGap)
	return r
}

func put(mem clrtest.Words, at, table arch.Addr, elements uint32) {
	mem[at] = uint64(table)
	mem[at+8] = uint64(elements)
}

// still returns options for memory that does not change.
func still(mem target.Memory) Options {
	return Options{
		Memory: mem, Still: true, Threads: func() ([]arch.Addr, error) { return []arch.Addr{threadAt}, nil },
		Check: func(mt arch.Addr) error {
			if mt == plainTable || mt == arrayTable {
				return nil
			}
			return errNoTable
		},
	}
}

func TestWalk(t *testing.T) {
	mem := clrtest.Words{}
	r := spread(t, mem)
	for name, o := range map[string]Options{
		"still": still(mem), "moving": {Memory: mem, Workers: 3, Threads: still(mem).Threads, Check: still(mem).Check},
	} {
		seen := map[arch.Addr]bool{}
		o.Want, o.Data = func(mt arch.Addr) bool { return mt == plainTable }, true
		o.Visit = func(_ *Region, objects []Object) {
			for i := range objects {
				seen[objects[i].Addr] = true
				if len(objects[i].Data) != 24 || objects[i].Size != 24 {
					t.Errorf("%s: %+v", name, objects[i])
				}
			}
		}
		c, err := r.Walk(o)
		if err != nil {
			t.Fatal(name, err)
		}
		all := uint64(youngEnd - youngStart + oldEnd - oldStart + otherEnd - otherStart)
		if c.Size != all || c.Walked != all || c.Consistent != all || c.Stopped || c.Collecting {
			t.Errorf("%s: %+v", name, c)
		}
		var free, unused uint64
		for _, p := range c.Parts {
			free, unused = free+p.Free.Bytes, unused+p.Unused
		}
		if free != 32+40 || unused != 0x80 {
			t.Errorf("%s: %d free, %d unused", name, free, unused)
		}
		arrays := (all - free - unused - 24) / 32
		for _, table := range c.Tables {
			n := c.Counts[table.Index][Gen0].Count + c.Counts[table.Index][Gen1].Count
			want := map[arch.Addr]uint64{freeTable: 2, plainTable: 1, arrayTable: arrays}[table.Addr]
			if n != want {
				t.Errorf("%s: %v %d times, not %d", name, table.Addr, n, want)
			}
		}
		if len(seen) != 1 || !seen[oldStart+64] {
			t.Errorf("%s: %v", name, seen)
		}
	}
}

// In a dump, a region whose objects make no sense is read up to the bad object. In a running program, the region does
// not count at all, because the region may have changed during the read.
func TestWalkDamaged(t *testing.T) {
	for name, spoil := range map[string]func(clrtest.Words){
		"no table":       func(m clrtest.Words) { m[oldStart+0x200] = uint64(noTable) },
		"no memory":      func(m clrtest.Words) { m[oldStart+0x200] = 0x6666_0000 },
		"odd":            func(m clrtest.Words) { m[oldStart+0x200] = uint64(plainTable) << 33 },
		"beyond the end": func(m clrtest.Words) { m[oldStart+0x208] = 0xffff_ffff },
		"in the middle":  func(m clrtest.Words) { m[oldStart+0x1f8] = 0x1234 }, // nothing is in front of an object
		"nothing":        func(m clrtest.Words) { m[0x5_0200] = 0; m[0x5_0208] = 0 },
	} {
		mem := clrtest.Words{}
		r := spread(t, mem)
		spoil(mem)
		old := func(c *Census) Part { return part(c, Gen1) }
		c, err := r.Walk(still(mem))
		if err != nil {
			t.Fatal(name, err)
		}
		if p := old(c); c.Size == c.Consistent || c.Consistent == 0 && name != "nothing" {
			t.Errorf("%s in a dump: %+v of %+v", name, p, c)
		}
		o := still(mem)
		o.Still, o.nap = false, func(time.Duration) {}
		if c, err = r.Walk(o); err != nil {
			t.Fatal(name, err)
		}
		if c.Consistent == c.Size || c.Passes > youngPasses {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// large is memory with arrays of 32 bytes from one address up to another.
type large struct {
	clrtest.Words
	from, to arch.Addr
}

func (l *large) ReadMemory(p []byte, at arch.Addr) error {
	if at < l.from-front || at+arch.Addr(len(p)) > l.to {
		return l.Words.ReadMemory(p, at)
	}
	clear(p)
	for i := 0; i+8 <= len(p); i += 8 {
		switch (at + arch.Addr(i) - l.from) % 32 {
		case 0:
			binary.LittleEndian.PutUint64(p[i:], uint64(arrayTable))
		case 8:
			binary.LittleEndian.PutUint64(p[i:], 2)
		}
	}
	return nil
}

// A young region of many megabytes is walked piece by piece: the kept data does not grow with the region.
func TestWalkLargeYoung(t *testing.T) {
	const from, to = arch.Addr(0x1000_0000), arch.Addr(0x1000_0000 + 3*pieceSize + 4096)
	mem := &large{clrtest.Words{}, from, to}
	r := spread(t, mem.Words)
	context := localsAt + arch.Addr(r.contexts.Outer+r.contexts.Inner)
	mem.Words[context], mem.Words[context+contextLimit] = 0, 0
	mem.Words[segsAt+arch.Addr(tableNode.Mem)] = uint64(from)
	mem.Words[segsAt+arch.Addr(tableNode.Reserved)] = uint64(to)
	mem.Words[listAt+varAllocAllocated] = uint64(to)
	for _, isStill := range []bool{true, false} {
		o := still(mem)
		o.Still, o.nap = isStill, func(time.Duration) {}
		o.Want = func(arch.Addr) bool { return true }
		seen, most := 0, 0
		o.Visit = func(region *Region, objects []Object) {
			if region.Start == from {
				seen, most = seen+len(objects), max(most, len(objects))
			}
		}
		c, err := r.Walk(o)
		if err != nil || c.Consistent != c.Size || c.Walked != c.Size {
			t.Errorf("%v, %v", c, err)
		}
		if seen != int(to-from)/32 || most > pieceSize/32 {
			t.Errorf("%d objects of %d, %d at a time", seen, int(to-from)/32, most)
		}
	}
}

// A region that belongs to another generation by now was collected. The region does not count, although it has grown.
func TestDoubt(t *testing.T) {
	mem := clrtest.Words{}
	r := spread(t, mem)
	o := still(mem)
	o.Still, o.nap = false, func(time.Duration) {}
	doubted := func() uint64 {
		w, err := r.newWalk(o)
		if err != nil {
			t.Fatal(err)
		}
		w.regions = []Region{{Segment: Segment{Start: oldStart, End: oldEnd - 0x100}, Generation: Gen2}}
		p := w.sheet.part(&w.regions[0])
		p.Consistent = 0xf00
		w.doubt()
		return 0xf00 - p.Consistent
	}
	if got := doubted(); got != 0xf00 {
		t.Errorf("as generation 1: %#x bytes are doubted, not all", got)
	}
	r.places.generations = 3
	mem.Zero(tableAt+2*genSize, genSize)
	mem[tableAt+2*genSize+firstSeg], mem[tableAt+genSize+firstSeg] = uint64(segsAt+0x100), 0
	if got := doubted(); got != 0 {
		t.Errorf("as generation 2: %#x bytes are doubted", got)
	}
}

func part(c *Census, g Generation) (out Part) {
	for _, p := range c.Parts {
		if p.Generation == g {
			out.Objects.add(p.Objects)
			out.Consistent += p.Consistent
			out.Size += p.Size
		}
	}
	return out
}

// changing is memory that changes while the walk reads.
type changing struct {
	clrtest.Words
	change func(at arch.Addr)
}

func (c *changing) ReadMemory(p []byte, at arch.Addr) error {
	c.change(at)
	return c.Words.ReadMemory(p, at)
}

// A collection between the beginning and the end of a pass is noticed, and the young generations are walked again. An
// endless collection leaves nothing consistent.
func TestWalkCollecting(t *testing.T) {
	mem := &changing{Words: clrtest.Words{}, change: func(arch.Addr) {}}
	r := spread(t, mem.Words)
	context := localsAt + arch.Addr(r.contexts.Outer+r.contexts.Inner)
	o := still(mem)
	o.Still, o.nap = false, func(time.Duration) {}
	// The thread has since got a context at the same place, or no context. The third word of a context is the number
	// of given bytes (gcinterface.h).
	for _, next := range []arch.Addr{contextNext, 0} {
		collected := false
		mem.change = func(at arch.Addr) {
			if at == youngStart-front && !collected { // in the middle of the first pass
				collected = true
				mem.Words[context+16] += 8192
				if mem.Words[context] = uint64(next); next == 0 {
					mem.Words[context+8] = 0
				}
			}
		}
		c, err := r.Walk(o)
		if err != nil || !collected || c.Passes < 2 || c.Consistent != c.Size {
			t.Errorf("%v: %+v, %v: %d passes", next, c, err, c.Passes)
		}
	}
	mem.change = func(arch.Addr) { mem.Words[context+contextBytes] += 1 << 20 }
	c, err := r.Walk(o)
	if err != nil || c.Passes != youngPasses || part(c, Gen0).Consistent != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	mem.Words[listAt+0x800] = 1 // objects are being moved all the time
	c, err = r.Walk(o)
	if err != nil || c.Consistent != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// Generations share segments: the youngest generation lies last.
func TestRegionsShared(t *testing.T) {
	mem := clrtest.Words{}
	r := spread(t, mem)
	mem.Uint32(listAt+4*generationStart, 64)
	mem[varsAt+varGenerations] = 3
	mem.Zero(tableAt+2*genSize, genSize)
	mem[tableAt+2*genSize+firstSeg] = uint64(segsAt)
	mem[tableAt+genSize+firstSeg] = uint64(segsAt)
	mem[tableAt+64] = uint64(youngStart + 0x600)
	mem[tableAt+genSize+64] = uint64(youngStart + 0x200)
	got, err := r.Regions()
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []Segment{
		{Start: youngStart, End: youngStart + 0x200}, {Start: youngStart + 0x200, End: youngStart + 0x600},
		{Start: youngStart + 0x600, End: youngEnd},
	} {
		if got[i].Segment != want || got[i].Generation != Gen2-Generation(i) {
			t.Errorf("%+v, want %v", got[i], want)
		}
	}
	mem[tableAt+64] = uint64(youngStart)
	if _, err := r.Regions(); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// linked adds references to the made-up heap: an array with references in its elements, from the first element on,
// and an object with two references.
func linked(mem clrtest.Words, r *Reader) {
	flags := func(mt arch.Addr, v uint32) { mem.Uint32(mt+arch.Addr(r.l.Flags), v) }
	flags(arrayTable, hasReferences|hasComponents|4)
	flags(plainTable, hasReferences)
	mem.Uint32(plainTable+arch.Addr(r.l.BaseSize), 32)
	mem.Zero(arrayTable-64, 64)
	mem.Zero(plainTable-64, 64)
	mem[plainTable-8] = 1           // series
	mem[plainTable-16] = 8          // offset of the first
	mem[plainTable-24] = 1<<64 - 16 // added to the object's size
	mem[arrayTable-8] = 1<<64 - 1   // one run for each element
	mem[arrayTable-16] = 16         // offset of the first
	mem[arrayTable-24] = 1 | 8<<32  // a reference, and then eight bytes
	put(mem, oldStart+64, plainTable, 0)
	mem[oldStart+72], mem[oldStart+80] = uint64(youngStart), uint64(oldStart+96)
	mem[oldStart+88] = 0
	put(mem, oldStart+96, arrayTable, 2)
	mem[oldStart+112] = uint64(youngStart + 32)
	mem[youngStart+32+16] = uint64(oldStart + 8) // no object
	mem[otherStart+16] = 0x1234_5678             // not on the heap
}

// The references between objects are the references that the collector would follow, and lead to objects only.
func TestGraph(t *testing.T) {
	mem := clrtest.Words{}
	r := spread(t, mem)
	linked(mem, r)
	o := still(mem)
	o.Graph = true
	c, err := r.Walk(o)
	if err != nil || c.Consistent != c.Size {
		t.Fatal(c, err)
	}
	g := c.Graph
	number := map[arch.Addr]int{}
	for n := range g.Len() {
		x, _ := g.Object(n)
		number[x.Addr] = n
	}
	got := map[arch.Addr][]arch.Addr{}
	for at, n := range number {
		g.References(n, func(to int) {
			x, _ := g.Object(to)
			got[at] = append(got[at], x.Addr)
		})
	}
	want := map[arch.Addr][]arch.Addr{
		oldStart + 64: {youngStart, oldStart + 96}, oldStart + 96: {youngStart + 32},
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for at := range want {
		if !slices.Equal(got[at], want[at]) {
			t.Errorf("%v refers to %v, not to %v", at, got[at], want[at])
		}
	}
	way := g.Paths(nil, nil, goOn).To(number[youngStart+32], 10)
	var addrs []arch.Addr
	for _, n := range way.Objects {
		x, _ := g.Object(n)
		addrs = append(addrs, x.Addr)
	}
	if !way.Whole || way.Gap != 0 || !slices.Equal(addrs, []arch.Addr{youngStart + 32, oldStart + 96, oldStart + 64}) {
		t.Errorf("the way is %v, %+v", addrs, way)
	}
	mem[oldStart+64+8] = uint64(oldStart + 64) // refers to itself, and two other objects refer to each other
	mem[oldStart+112] = uint64(oldStart + 64)
	if c, err = r.Walk(o); err != nil {
		t.Fatal(err)
	}
	way = c.Graph.Paths(nil, nil, goOn).To(number[oldStart+96], 10)
	if way.Whole || len(way.Objects) != 1 {
		t.Errorf("a circle: %+v", way)
	}
}

// A description of references that makes no sense is not followed.
func TestReferencesRefused(t *testing.T) {
	for name, spoil := range map[string]func(clrtest.Words){
		"none":                   func(m clrtest.Words) { m[plainTable-8] = 0 },
		"too many":               func(m clrtest.Words) { m[plainTable-8] = 1 << 40 },
		"too many of an element": func(m clrtest.Words) { m[arrayTable-8] = 1 << 63 },
		"odd":                    func(m clrtest.Words) { m[plainTable-16] = 12 },
		"too far":                func(m clrtest.Words) { m[plainTable-16] = 1 << 40 },
		"too large":              func(m clrtest.Words) { m[plainTable-24] = 1 << 40 },
		"endless":                func(m clrtest.Words) { m[arrayTable-24] = 0 },
		"gaps only":              func(m clrtest.Words) { m[arrayTable-24] = 8 << 32 },
		"an odd gap":             func(m clrtest.Words) { m[arrayTable-24] = 1 | 1<<32 },
		"two in one place": func(m clrtest.Words) {
			m[plainTable-8] = 2
			m[plainTable-32], m[plainTable-40] = 16, 1<<64-16
		},
	} {
		mem := clrtest.Words{}
		r := spread(t, mem)
		linked(mem, r)
		spoil(mem)
		o := still(mem)
		o.Graph = true
		c, err := r.Walk(o)
		if err != nil || c.Consistent == c.Size && name != "too far" {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// FuzzWalk: whatever a heap contains, a walk ends, and all counted objects lie within the heap.
func FuzzWalk(f *testing.F) {
	mem := clrtest.Words{}
	r := spread(f, mem)
	seed := make([]byte, 0x200)
	if err := mem.ReadMemory(seed, oldStart); err != nil {
		f.Fatal(err)
	}
	f.Add(seed, seed, uint32(24), uint32(hasComponents|4), uint64(contextNext), uint64(contextNext+0x68), false)
	f.Fuzz(func(t *testing.T, old, young []byte, base, flags uint32, next, limit uint64, isStill bool) {
		mem := clrtest.Words{}
		r = spread(t, mem)
		for at, data := range map[arch.Addr][]byte{oldStart: old, youngStart: young} {
			for i := 0; i+8 <= len(data) && i < 0x800; i += 8 {
				mem[at+arch.Addr(i)] = binary.LittleEndian.Uint64(data[i:])
			}
		}
		mem.Uint32(arrayTable+arch.Addr(r.l.Flags), flags)
		mem.Uint32(arrayTable+arch.Addr(r.l.BaseSize), base)
		context := localsAt + arch.Addr(r.contexts.Outer+r.contexts.Inner)
		mem[context], mem[context+contextLimit] = next, limit
		o := still(mem)
		o.nap = func(time.Duration) {}
		linked(mem, r)
		mem.Uint32(arrayTable+arch.Addr(r.l.Flags), flags)
		mem[plainTable-16], mem[plainTable-24], mem[arrayTable-24] = next, limit, next^limit
		o.Graph = true
		o.Still, o.Data, o.Want = isStill, true, func(arch.Addr) bool { return true }
		o.Visit = func(region *Region, objects []Object) {
			for _, x := range objects {
				if !Contains([]Segment{region.Segment}, x.Addr) || x.Addr+arch.Addr(x.Size) > region.End {
					t.Errorf("%+v in %v", x, region)
				}
			}
		}
		c, err := r.Walk(o)
		if err != nil {
			t.Skip()
		}
		for n := range c.Graph.Len() {
			c.Graph.References(n, func(to int) {
				if to < 0 || to >= c.Graph.Len() {
					t.Errorf("%d refers to %d", n, to)
				}
			})
		}
		if ways := c.Graph.Paths(nil, nil, goOn); c.Graph.Len() > 0 {
			ways.To(0, 100)
		}
		checkKept(t, c.Graph)
		if c.Walked > c.Size || c.Consistent > c.Size {
			t.Errorf("%+v", c)
		}
	})
}

// checkKept: whatever a graph looks like, the heads lead to all objects, and together keep all bytes.
func checkKept(t *testing.T, g *Graph) {
	t.Helper()
	free, circles, ok := g.Heads(nil, goOn)
	seen, left := make([]bool, g.Len()), append(free, circles...)
	for len(left) > 0 {
		n := left[len(left)-1]
		left = left[:len(left)-1]
		if !seen[n] {
			seen[n] = true
			g.References(int(n), func(to int) { left = append(left, uint32(to)) })
		}
	}
	sum, count := uint64(0), 0
	for o := range g.All {
		if n, there := g.Number(o.Addr); !there || n != count || !seen[count] {
			t.Errorf("object %d at %v: %d, %v, %v", count, o.Addr, n, there, seen[count])
		}
		sum += o.Size
		count++
	}
	of := DominatorOptions{Class: func(o Object, _ Generation) int32 { return int32(o.Table.Index) }, Stopped: goOn}
	all := g.Retained(nil, RetainedOptions{Stopped: goOn}).Dominators(of)
	if !ok || count != g.Len() || all[0].Retained != sum {
		t.Errorf("%d of %d objects; %d of %d bytes are kept", count, g.Len(), all[0].Retained, sum)
	}
}
