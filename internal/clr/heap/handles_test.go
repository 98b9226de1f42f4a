package heap

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

const (
	mapAt     = arch.Addr(0x7600_0000)
	bucketsAt = mapAt + 0x100
	bucketAt  = mapAt + 0x200
	tablesAt  = mapAt + 0x300
	handlesAt = mapAt + 0x400 // a table of handles
	segment1  = arch.Addr(0x7601_0000)
	segment2  = arch.Addr(0x7602_0000)
	queueAt   = arch.Addr(0x7700_0000)
	arrayAt   = arch.Addr(0x7700_1000)
)

// withHandles makes two segments of handles, as in a runtime with so many types of handles.
func withHandles(mem clrtest.Words, types int) {
	mem[varsAt+varHandleTables] = uint64(mapAt)
	mem[mapAt], mem[mapAt+mapNext], mem[mapAt+mapCount] = uint64(bucketsAt), 0, 2
	mem[bucketsAt], mem[bucketsAt+8] = 0, uint64(bucketAt)
	mem[bucketAt] = uint64(tablesAt)
	mem[tablesAt] = uint64(handlesAt)
	mem.Zero(handlesAt, 64)
	mem[handlesAt+tableHandles[types-12].first] = uint64(segment1)
	withSegment(mem, types, segment1, segment2, []HandleKind{Strong, WeakShort, Dependent, 12})
	withSegment(mem, types, segment2, 0, []HandleKind{PinnedHandle})
	mem[segment1+segmentHead] = 0x1000
	mem[segment1+segmentHead+8*63] = 0x2000
	mem[segment1+segmentHead+8*64] = 0x3000
	mem[segment1+segmentHead+8*(128+5)] = 0x4000
	mem[segment1+segmentHead+8*(192+5)] = 0x5000 // of the block with more data of the Dependent handles
	mem[segment2+segmentHead] = 0x6000
}

// withSegment makes a segment of empty blocks. The last block has more data of the blocks of kind Dependent.
func withSegment(mem clrtest.Words, types int, at, next arch.Addr, kinds []HandleKind) {
	var head [segmentHead]byte
	for i := range blocksOfSegment {
		head[blockTypes+i], head[blockData+i] = 0xff, 0xff
	}
	for i, k := range kinds {
		if head[blockTypes+i] = byte(k); k == Dependent {
			head[blockData+i] = byte(len(kinds) - 1)
		}
	}
	owner := tableHandles[types-12].owner()
	binary.LittleEndian.PutUint64(head[owner-8:], uint64(next))
	binary.LittleEndian.PutUint64(head[owner:], uint64(handlesAt))
	head[owner+10] = byte(len(kinds))
	for i := 0; i < len(head); i += 8 {
		mem[at+arch.Addr(i)] = binary.LittleEndian.Uint64(head[i:])
	}
	mem.Zero(at+segmentHead, 8*handlesOfBlock*len(kinds))
}

func TestHandles(t *testing.T) {
	want := []Handle{
		{At: segment1 + segmentHead, Object: 0x1000, Kind: Strong},
		{At: segment1 + segmentHead + 8*63, Object: 0x2000, Kind: Strong},
		{At: segment1 + segmentHead + 8*64, Object: 0x3000, Kind: WeakShort},
		{At: segment1 + segmentHead + 8*133, Object: 0x4000, Kind: Dependent, Secondary: 0x5000},
		{At: segment2 + segmentHead, Object: 0x6000, Kind: PinnedHandle},
	}
	for _, types := range []int{12, 13} {
		mem := clrtest.Words{}
		r := made(t, mem, false)
		withHandles(mem, types)
		got, err := r.Handles(mem)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d types: %+v, %v", types, got, err)
		}
	}
	keeps := map[HandleKind]bool{Strong: true, PinnedHandle: true, VariableHandle: true, RefCounted: true,
		SizedRef: true, AsyncPinned: true}
	for k := range handleKinds {
		if h := (Handle{Kind: k}); h.Keeps() != keeps[k] {
			t.Errorf("kind %d keeps: %v", k, h.Keeps())
		}
	}
}

// A collector with several heaps has a table for each processor, even while there are fewer heaps. If the number of
// processors is not known, the memory behind the tables is no table.
func TestHandlesOfProcessors(t *testing.T) {
	mem := clrtest.Words{}
	r := made(t, mem, true)
	withHandles(mem, 12)
	const table, segment = handlesAt + 0x100, arch.Addr(0x7603_0000)
	mem.Zero(table, 64)
	mem[table+tableHandles[0].first] = uint64(segment)
	withSegment(mem, 12, segment, 0, []HandleKind{Strong})
	mem[segment+tableHandles[0].owner()] = uint64(table)
	mem[segment+segmentHead] = 0x7000
	for _, behind := range []uint64{0, 0x21, uint64(table), uint64(segment)} { // nothing, a size, the same once more
		mem[tablesAt+8], mem[tablesAt+16] = uint64(table), behind
		got, err := r.Handles(mem)
		if err != nil || len(got) != 6 || got[5].Object != 0x7000 {
			t.Errorf("%#x behind: %+v, %v", behind, got, err)
		}
	}
}

// Bad data is an error, and the read ends.
func TestHandlesRefused(t *testing.T) {
	for name, spoil := range map[string]func(clrtest.Words){
		"another table's segment": func(m clrtest.Words) { m[segment2+tableHandles[0].owner()] = 0x1000 },
		"no segment":              func(m clrtest.Words) { m[handlesAt+tableHandles[0].first] = uint64(segment1) + 8 },
		"a circle of segments":    func(m clrtest.Words) { m[segment2+tableHandles[0].owner()-8] = uint64(segment1) },
		"a circle of maps":        func(m clrtest.Words) { m[mapAt+mapNext] = uint64(mapAt) },
		"no map":                  func(m clrtest.Words) { m[varsAt+varHandleTables] = 0 },
		"no memory":               func(m clrtest.Words) { m[bucketAt] = 0x10 },
	} {
		mem := clrtest.Words{}
		r := made(t, mem, false)
		withHandles(mem, 12)
		spoil(mem)
		if got, err := r.Handles(mem); err == nil {
			t.Errorf("%s: %d handles", name, len(got))
		}
	}
}

// withQueue makes a queue of finalizers: two generations, then three objects whose finalizers are to run.
func withQueue(mem clrtest.Words, r *Reader, server bool) {
	if server {
		mem.Uint32(listAt+0x400+4*heapFinalizeQueue, 16)
		mem[tableAt+16] = uint64(queueAt)
	} else {
		mem[varsAt+varFinalizeQueue] = uint64(listAt + 0x300)
		mem[listAt+0x300] = uint64(queueAt)
	}
	for i, end := range []int{1, 3, 4, 6, 0, 16} { // ends of parts, then the array and its end
		mem[queueAt+8*arch.Addr(i)] = uint64(arrayAt) + 8*uint64(end)
	}
	for i := range uint64(16) {
		mem[arrayAt+8*arch.Addr(i)] = 0x1000 * (i + 1)
	}
}

func TestReady(t *testing.T) {
	for _, server := range []bool{false, true} {
		mem := clrtest.Words{}
		r := made(t, mem, server)
		withQueue(mem, r, server)
		got, err := r.Ready(mem)
		if err != nil || !slices.Equal(got, []arch.Addr{0x4000, 0x5000, 0x6000}) {
			t.Errorf("server %v: %v, %v", server, got, err)
		}
		mem[queueAt+8] = uint64(arrayAt) + 8*100
		if _, err := r.Ready(mem); !errors.Is(err, ErrUnknown) {
			t.Errorf("a part that ends behind the next one's: %v", err)
		}
		withQueue(mem, r, server)
		mem[queueAt+8*3], mem[queueAt+8*5] = 0xf000_0000_0000_0000, 0xffff_ffff_ffff_fff8
		if _, err := r.Ready(mem); !errors.Is(err, ErrUnknown) {
			t.Errorf("a part that is larger than any memory: %v", err)
		}
		r.places.queueEnds = readyParts
		if r.places.check() == nil {
			t.Error("no generations have a queue")
		}
	}
}

// FuzzRoots: whatever lies in place of handles and of the queue of finalizers, reading them ends.
func FuzzRoots(f *testing.F) {
	f.Add(uint64(segment1), uint64(0), uint64(bucketsAt), uint64(2), uint64(arrayAt), []byte{2, 0, 6, 12})
	f.Fuzz(func(t *testing.T, next, maps, buckets, count, queue uint64, kinds []byte) {
		mem := clrtest.Words{}
		r := made(t, mem, false)
		withHandles(mem, 12)
		withQueue(mem, r, false)
		all := make([]HandleKind, min(len(kinds), blocksOfSegment))
		for i := range all {
			all[i] = HandleKind(kinds[i])
		}
		withSegment(mem, 12, segment2, arch.Addr(next), all)
		mem[mapAt], mem[mapAt+mapNext], mem[mapAt+mapCount] = buckets, maps, count
		mem[queueAt+16] = queue
		handles, _ := r.Handles(mem)
		for _, h := range handles {
			if h.Object == 0 || h.Kind >= handleKinds {
				t.Errorf("%+v", h)
			}
		}
		_, _ = r.Ready(mem) // an error is fine, too
	})
}
