package waits

import (
	"encoding/binary"
	"os"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// joinsProgram is a subsystemProgram with a collector, and with a list of threads.
type joinsProgram struct {
	*subsystemProgram
	event, safe *clrtest.Class
	list        []thread.Thread
	store       arch.Addr
	stamp       arch.Addr // a word of the collector's record
	reader      *Reader
}

func newJoins(t *testing.T, threads int) *joinsProgram {
	p := &joinsProgram{subsystemProgram: newSubsystem(t)}
	ref := func(name string) []clrtest.Field {
		return []clrtest.Field{{Name: name, Offset: 8, Type: clrtest.Reference}}
	}
	p.event = &clrtest.Class{Name: waitHandleClass, Base: p.object, Size: 24, Fields: ref("_waitHandle")}
	p.safe = &clrtest.Class{Name: safeHandle, Base: p.object, Size: 24, Fields: ref("handle")}
	p.Assembly(coreLib, p.event, p.safe)
	p.collector()
	variable, _ := p.d.Global("ThreadStore")
	p.store = p.Room(256)
	p.Words[arch.Addr(variable)] = uint64(p.store)
	for range threads {
		p.start()
	}
	p.reader = &Reader{Managed: &p.runtime.Managed, Runtime: p.runtime, People: p, Live: p}
	return p
}

// collector adds the collector's description of itself. The heap is empty.
func (p *joinsProgram) collector() {
	b, err := os.ReadFile("../contract/testdata/net11.0.0-gc-workstation.json")
	if err != nil {
		p.t.Fatal(err)
	}
	const pointers = 29
	table, text, header := p.Room(8*pointers), p.Room(len(b)), p.Room(40)
	all := make([]uint64, pointers)
	for i := range all {
		all[i] = uint64(p.Room(0x800))
		p.Words[table+8*arch.Addr(i)] = all[i]
	}
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		copy(word[:], b[i:])
		p.Words[text+arch.Addr(i)] = binary.LittleEndian.Uint64(word[:])
	}
	for i, word := range []uint64{
		0x00434144_43434e44, 1 | uint64(len(b))<<32, uint64(text), pointers, uint64(table),
	} {
		p.Words[header+8*arch.Addr(i)] = word
	}
	p.Words[arch.Addr(clrtest.Descriptor(p.t, clrtest.Net11).SubDescriptors["GC"].Value)] = uint64(header)
	d, err := contract.FromJSON(b, all)
	if err != nil {
		p.t.Fatal(err)
	}
	at, _ := d.Global("GCHeapGenerationTable")
	p.stamp = arch.Addr(at) + 0x40
}

// start adds a thread to the end of the list.
func (p *joinsProgram) start() {
	n := len(p.list)
	at := p.Room(1024)
	t := thread.Thread{Address: at, ManagedID: 100 + n, OSID: 5000 + n}
	_, t.Exposed = p.managed(&t)
	p.Uint32(at+p.offset("Thread", "Id"), uint32(t.ManagedID))
	p.Words[at+p.offset("Thread", "OSId")] = uint64(t.OSID)
	p.Words[at+p.offset("Thread", "ExposedObject")] = uint64(t.Exposed)
	link := p.store + p.offset("ThreadStore", "FirstThreadLink")
	if n > 0 {
		link = p.list[n-1].Address + p.offset("Thread", "LinkNext")
	}
	p.Words[link] = uint64(at)
	p.list = append(p.list, t)
}

// join has other threads wait for the end of a thread.
func (p *joinsProgram) join(t *thread.Thread, awaited arch.Addr) {
	event, safe, handle := p.Object(p.event), p.Object(p.safe), p.Room(8)
	p.Set(event, p.event, "_waitHandle", uint64(safe))
	p.Set(safe, p.safe, "handle", uint64(handle))
	p.Words[handle] = uint64(awaited)
	p.Set(arch.Addr(p.Words[t.Exposed]), p.thread, "_joinEvent", uint64(event))
}

// At implements People.
func (p *joinsProgram) At(address arch.Addr) *thread.Thread {
	for i := range p.list {
		if p.list[i].Address == address {
			return &p.list[i]
		}
	}
	return p.subsystemProgram.At(address)
}

// waits explains the wait of the thread self for an object.
func (p *joinsProgram) waits(awaited arch.Addr) *snapshot.Wait {
	const base = arch.Addr(0x7000_0000_0000)
	p.waitsFor(awaited)
	data := make([]byte, 0x400)
	p.Zero(base, len(data))
	return p.reader.Wait(&Subject{
		Frames: []snapshot.Frame{
			{Kind: snapshot.Native, SP: uint64(base)},
			{Kind: snapshot.Managed, Module: "Shop", Method: "Shop.Orders.Work", SP: uint64(base) + 0x100},
		},
		Stack: &target.Stack{Region: target.Region{Base: base, Data: data}}, Blocked: true, Thread: p.self,
	})
}

// is reports the faults of a wait; of: the thread that is joined, nil: none.
func (p *joinsProgram) is(text string, w *snapshot.Wait, of *thread.Thread) {
	p.t.Helper()
	want := snapshot.HandleOne
	if of != nil {
		want = snapshot.ThreadJoin
	}
	if w == nil || w.Kind != want || !w.Certain || of != nil && (w.Owner == nil || w.Owner.OSThreadID != of.OSID) {
		p.t.Errorf("%s: %+v", text, w)
	}
}

// TestJoined: whether an event is the end of a thread is certain, however many threads there are, and takes one search.
func TestJoined(t *testing.T) {
	const threads = 1500
	p := newJoins(t, threads)
	event, second, end := p.waited(0, 2, 0), p.waited(0, 1, 0), p.waited(0, 1, 0)
	last := &p.list[threads-1]
	p.join(last, end)
	p.is("an event", p.waits(event), nil)
	looked := p.reader.ends.looked
	p.is("the end of the last thread", p.waits(end), last)
	p.is("the event again", p.waits(event), nil)
	if n := p.reader.ends.looked; looked < threads || n != looked {
		t.Errorf("%d threads were looked at, and again %d", looked, n-looked)
	}
	p.is("another event", p.waits(second), nil)
	if n := p.reader.ends.looked - looked; n == 0 || n > threads/4 {
		t.Errorf("%d threads were looked at for another event", n)
	}

	first := p.waited(0, 1, 0)
	p.join(&p.list[0], first)
	p.is("a thread that somebody joins from now on", p.waits(first), &p.list[0])
	p.start()
	young := p.waited(0, 1, 0)
	p.join(&p.list[threads], young)
	p.is("a new thread", p.waits(young), &p.list[threads])
	p.join(&p.list[2], event) // an object in the place of another object
	p.Words[p.stamp]++
	p.is("a thread, after a collection", p.waits(event), &p.list[2])
	p.Words[p.list[2].Exposed] = p.Words[p.list[3].Exposed]
	if w := p.waits(event); w == nil || w.Kind != snapshot.HandleOne {
		t.Errorf("a thread with another object: %+v", w)
	}
}

// TestJoinedBudget: the threads that searches look at are bounded. Beyond the bound a wait for an event is uncertain.
func TestJoinedBudget(t *testing.T) {
	p := newJoins(t, 1000)
	doubtful := 0
	p.reader.ends.looked = maxEnds - 2500
	for range 5 {
		p.list[0].OSID++ // each time another search
		p.Words[p.list[0].Address+p.offset("Thread", "OSId")]++
		w := p.waits(p.waited(0, 1, 0))
		if w == nil || w.Kind != snapshot.HandleOne {
			t.Fatalf("%+v", w)
		}
		if !w.Certain {
			doubtful++
		}
	}
	if doubtful == 0 {
		t.Error("no end")
	}
	p.reader.Refill()
	p.is("in the next snapshot", p.waits(p.waited(0, 1, 0)), nil)
}
