package threadpool

import (
	"encoding/binary"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/target"
)

// program is a made-up program with a thread pool. The offsets of fields are not those of a runtime.
type program struct {
	*clrtest.Program
	object, pool, queue, local, own, concurrent, segment *clrtest.Class

	objects arch.Addr // MethodTable of object[]
}

func newProgram(t testing.TB, descriptor string) *program {
	p := &program{Program: clrtest.NewProgram(t, descriptor)}
	ref := func(name string, offset uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: offset, Type: clrtest.Reference}
	}
	number := func(name string, offset uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: offset, Type: clrtest.Int32}
	}
	inline := func(name string, offset uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: offset, Type: clrtest.Struct}
	}
	class := func(name string, size uint32, fields ...clrtest.Field) *clrtest.Class {
		c := &clrtest.Class{Name: name, Size: size, Fields: fields}
		if name != "System.Object" {
			c.Base = p.object
		}
		return c
	}
	p.object = class("System.Object", 8)
	p.pool = class(poolClass, 400, number("_minThreads", 8), number("_maxThreads", 12),
		number("_numBlockedThreads", 16), inline("_separated", 24))
	p.queue = class(queueClass, 64, ref("workItems", 8), ref("highPriorityWorkItems", 16),
		ref("_assignableWorkItemQueues", 24))
	p.local = class(localClass, 64, number("m_headIndex", 8), number("m_tailIndex", 12))
	p.own = class(ownClass, 64, ref("workQueue", 8), ref("workStealingQueue", 16))
	p.concurrent = class("System.Collections.Concurrent.ConcurrentQueue`1", 64, ref("_head", 8))
	p.segment = class("System.Collections.Concurrent.ConcurrentQueueSegment`1", 400, number("_slotsMask", 8),
		ref("_nextSegment", 16), inline("_headAndTail", 24))
	p.Assembly(coreLib, p.object, p.pool, p.queue, p.local, p.own, p.concurrent, p.segment)
	p.objects = p.ArrayOf(p.object)
	return p
}

// newFinder returns a Finder for which all memory is heap.
func newFinder(t testing.TB, mem target.Memory, descriptor string) *Finder {
	t.Helper()
	d := clrtest.Descriptor(t, descriptor)
	ts, err := types.New(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := method.New(mem, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := name.New(mem, d, ts, ms)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := object.New(mem, d, ts, ns)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFinder(objects, nil)
	f.Begin()
	f.segments = []heap.Segment{{Start: 1 << 16, End: 1 << 47}}
	return f
}

// words are a stack with references to objects.
func words(objects ...arch.Addr) []byte {
	var out []byte
	for _, o := range objects {
		out = binary.LittleEndian.AppendUint64(out, uint64(o))
	}
	return out
}

// items adds a queue with segments of 32 items. All segments but the last are full.
func (p *program) items(segments, last int) arch.Addr {
	next := arch.Addr(0)
	for i := range segments {
		at := p.Object(p.segment)
		p.Set(at, p.segment, "_slotsMask", 31)
		p.Set(at, p.segment, "_nextSegment", uint64(next))
		tail := uint32(last)
		if i > 0 { // frozen
			tail = 32 + 64
		}
		p.Uint32(at+24+2*cacheLine, tail)
		next = at
	}
	q := p.Object(p.concurrent)
	p.Set(q, p.concurrent, "_head", uint64(next))
	return q
}

// TestRead: the pool's numbers, and the work items of its queues, including items that a worker has put aside.
func TestRead(t *testing.T) {
	for _, d := range []string{clrtest.Net9, clrtest.Net10, clrtest.Net11} {
		p := newProgram(t, d)
		pool, queue, local, own := p.Object(p.pool), p.Object(p.queue), p.Object(p.local), p.Object(p.own)
		p.Words[pool+8] = 4 | 200<<16<<16 // the fields of two bytes lie four apart here
		p.Words[pool+16] = 3
		p.Words[pool+24+cacheLine] = 5 | 7<<16 | 6<<32
		p.Set(queue, p.queue, "workItems", uint64(p.items(3, 11)))
		p.Set(queue, p.queue, "highPriorityWorkItems", uint64(p.items(1, 2)))
		p.Set(queue, p.queue, "_assignableWorkItemQueues", uint64(p.Array(p.objects, p.items(1, 1), p.items(2, 1))))
		p.Set(local, p.local, "m_headIndex", 0xffff_fffe)
		p.Set(local, p.local, "m_tailIndex", 4)
		p.Set(own, p.own, "workQueue", uint64(queue))
		p.Set(own, p.own, "workStealingQueue", uint64(local))
		f := newFinder(t, p, d)
		if _, err := f.Read(); err == nil {
			t.Errorf("%s: a pool is read that was not found", d)
		}
		f.Look(words(0, 7, pool, own, own))
		want := State{Workers: 7, Working: 5, Goal: 6, Minimum: 4, Maximum: 200, Blocked: 3, HasQueue: true,
			Queued: 2*32 + 11 + 2 + 1 + 32 + 1 + 6}
		if s, err := f.Read(); err != nil || s != want {
			t.Errorf("%s: %+v, %v", d, s, err)
		}
		p.Words[pool+24+cacheLine] |= 1 << 63 // a thread is asked for
		if s, err := f.Read(); err != nil || s != want {
			t.Errorf("%s, with a thread asked for: %+v, %v", d, s, err)
		}
		p.Words[pool+24+cacheLine] = 9 | 7<<16 | 6<<32 // more at work than there are
		if s, err := f.Read(); err == nil {
			t.Errorf("%s: %+v", d, s)
		}
	}
}

// TestCircle: a circle of segments ends the look.
func TestCircle(t *testing.T) {
	p := newProgram(t, clrtest.Net10)
	pool, queue, items := p.Object(p.pool), p.Object(p.queue), p.items(2, 1)
	p.Words[pool+8], p.Words[pool+24+cacheLine] = 4|200<<32, 5|7<<16|6<<32
	head := arch.Addr(p.Words[items+8])
	p.Set(head, p.segment, "_nextSegment", uint64(head))
	p.Set(queue, p.queue, "workItems", uint64(items))
	p.Set(queue, p.queue, "highPriorityWorkItems", uint64(p.items(1, 0)))
	f := newFinder(t, p, clrtest.Net10)
	f.Look(words(pool, queue))
	if s, err := f.Read(); err != nil || s.HasQueue || s.Workers != 7 {
		t.Errorf("%+v, %v", s, err)
	}
}

// fuzzed is the memory of a program with objects of fuzz data.
type fuzzed struct{ types, objects clrtest.Words }

func (f *fuzzed) ReadMemory(p []byte, at arch.Addr) error {
	if err := f.objects.ReadMemory(p, at); err == nil {
		return nil
	}
	return f.types.ReadMemory(p, at)
}

// FuzzPool: objects of the pool's classes refer to one another in any way. The result makes sense, and takes bounded
// time.
func FuzzPool(f *testing.F) {
	const at, size, most = arch.Addr(0x7000_0000), 256, 32
	p := newProgram(f, clrtest.Net10)
	tables := []arch.Addr{
		p.pool.Table, p.queue.Table, p.own.Table, p.concurrent.Table, p.segment.Table, p.local.Table, p.objects,
	}
	f.Add(append([]byte{0, 35}, slices.Repeat([]byte{33}, 22)...)) // a pool that makes sense
	f.Add(slices.Repeat([]byte{4, 4, 4, 4}, 30))
	f.Add(append([]byte{1, 2, 2, 3}, slices.Repeat([]byte{3, 1, 4}, 20)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects := clrtest.Words{}
		var stack []arch.Addr
		for n := 0; n < most && len(data) > 0; n++ {
			var chunk [24]byte
			data = data[copy(chunk[:], data):]
			obj := at + arch.Addr(n)*size
			objects.Zero(obj, size)
			objects[obj] = uint64(tables[int(chunk[0])%len(tables)])
			for i, b := range chunk[1:] {
				if b < most {
					objects[obj+8+8*arch.Addr(i)] = uint64(at) + uint64(b)*size
				} else {
					objects[obj+8+8*arch.Addr(i)] = uint64(b-most) | uint64(b&7)<<16 | uint64(b&3)<<32
				}
			}
			stack = append(stack, obj)
		}
		finder := newFinder(t, &fuzzed{p.Words, objects}, clrtest.Net10)
		finder.Look(words(stack...))
		s, err := finder.Read()
		if err == nil && (s.Working > s.Workers || s.Minimum <= 0 || s.Maximum < s.Minimum || s.Queued < 0) {
			t.Errorf("%+v", s)
		}
	})
}
