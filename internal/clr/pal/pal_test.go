package pal

import (
	"encoding/binary"
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// built is memory with objects in a shape. Other memory is 0, up to the end.
type built struct {
	s    *shape
	data []byte
}

const (
	base      = arch.Addr(0x10_0000)
	waiter    = base + 0x1000 // CPalThreads
	holder    = base + 0x2000
	record    = 0x3000 // nodes: of waits, of owned objects
	mutex     = base + 0x4000
	event     = base + 0x4100
	ended     = base + 0x4200
	objects   = base + 0x5000 // one object for each thread and state
	lists     = base + 0x6000
	table     = base + 0x7000
	local     = base + 0x7800
	stackBase = arch.Addr(0x7000_0000)

	waiterID, holderID = 4711, 4712
)

func (b *built) ReadMemory(p []byte, addr arch.Addr) error {
	if addr < base || int(addr-base)+len(p) > len(b.data) {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	copy(p, b.data[addr-base:])
	return nil
}

func (b *built) put(at arch.Addr, v uint64) { binary.LittleEndian.PutUint64(b.data[at-base:], v) }

func (b *built) put32(at arch.Addr, v uint32) { binary.LittleEndian.PutUint32(b.data[at-base:], v) }

func (b *built) at(base arch.Addr, off int) arch.Addr { return base + arch.Addr(off) }

// thread writes a CPalThread that owns nothing, and its object with the table of handles.
func (b *built) thread(at arch.Addr, id int, obj, data, localAt arch.Addr) {
	s := b.s
	b.put(b.at(at, s.record+s.thread), uint64(at))
	b.put(b.at(at, s.threadID), uint64(id))
	b.put(b.at(at, s.threadObject), uint64(obj))
	b.put(b.at(at, s.owned), uint64(b.at(at, s.owned)))
	b.put(b.at(at, s.owned)+8, uint64(b.at(at, s.owned)))
	b.object(obj, data)
	b.put(b.at(obj, s.local), uint64(localAt))
	b.put(localAt, uint64(at))
	b.state(data, Thread, 0)
}

func (b *built) object(at, data arch.Addr) {
	b.put(b.at(at, b.s.data), uint64(data))
	b.put(b.at(at, b.s.lists), uint64(lists))
}

// state writes a CSynchData with one node, or none.
func (b *built) state(at arch.Addr, kind Kind, node arch.Addr) {
	b.put32(b.at(at, b.s.kind), uint32(kind))
	if node != 0 {
		b.put(at, uint64(node))
		b.put(at+8, uint64(node))
		b.put32(b.at(at, b.s.waiters), 1)
	}
}

// waits has the waiter wait for states.
func (b *built) waits(all bool, of ...arch.Addr) {
	s, rec := b.s, b.at(waiter, b.s.record)
	kind := uint32(0)
	if all {
		kind = waitAll
	}
	b.put32(rec, kind)
	b.put32(b.at(rec, s.count), uint32(len(of)))
	for i, data := range of {
		node := base + record + arch.Addr(0x80*i)
		b.put(b.at(rec, s.nodes+8*i), uint64(node))
		b.put32(b.at(node, s.nodeID), waiterID)
		b.put(b.at(node, s.nodeData), uint64(data))
		b.put(b.at(node, s.nodeRecord), uint64(rec))
		b.put(data, uint64(node))
		b.put(data+8, uint64(node))
		b.put32(b.at(data, s.waiters), 1)
	}
}

// owns has the holder own the mutex.
func (b *built) owns(often int) {
	s, node, head := b.s, base+record+0x800, b.at(holder, b.s.owned)
	b.put32(b.at(mutex, s.often), uint32(often))
	b.put32(b.at(mutex, s.ownerID), holderID)
	b.put(b.at(mutex, s.owner), uint64(holder))
	b.put(b.at(mutex, s.ownedNode), uint64(node))
	b.put(node, uint64(head))
	b.put(node+8, uint64(head))
	b.put(node+ownedData, uint64(mutex))
	b.put(head, uint64(node))
	b.put(head+8, uint64(node))
}

func build(s *shape) *built {
	b := &built{s, make([]byte, 0x9000)}
	b.thread(waiter, waiterID, objects, base+0x4300, local)
	b.thread(holder, holderID, objects+0x400, ended, local+0x100)
	b.state(mutex, Mutex, 0)
	b.state(event, AutoResetEvent, 0)
	b.put32(b.at(lists, s.tableLen), growth)
	b.put32(b.at(lists, s.tableLen)+4, growth)
	b.put(b.at(lists, s.table), uint64(table))
	b.object(objects+0x800, mutex)
	b.put(table+5*entryLen, uint64(objects+0x800))
	b.put(table+5*entryLen+entryAllocated, 1)
	return b
}

// stack is the stack of the waiter, with pointers to its CPalThread and to the joined thread's object, among others.
func stack() *target.Stack {
	data := make([]byte, 512)
	for i, v := range []arch.Addr{0, stackBase + 8, 0x1234, base + 0x40, waiter, objects + 0x400, base - 8} {
		binary.LittleEndian.PutUint64(data[64+8*i:], uint64(v))
	}
	return &target.Stack{Region: target.Region{Base: stackBase, Data: data}}
}

func blocked(t *testing.T, b *built) (*Reader, *Blocked) {
	t.Helper()
	r := New(b, b)
	found, ok := r.Blocked(stack(), stackBase, stackBase+512, waiterID)
	if !ok || found.Thread != waiter {
		t.Fatalf("found %v, %v", found.Thread, ok)
	}
	r.Learn(&found)
	return r, &found
}

func eachShape(t *testing.T, test func(t *testing.T, b *built)) {
	for i, name := range []string{"net8", "net10"} {
		t.Run(name, func(t *testing.T) { test(t, build(&shapes[i])) })
	}
}

func TestWait(t *testing.T) {
	eachShape(t, func(t *testing.T, b *built) {
		b.owns(3)
		b.waits(true, event, mutex)
		r, thread := blocked(t, b)
		w, ok, err := r.Wait(thread)
		if err != nil || !ok || !w.All || len(w.Objects) != 2 {
			t.Fatalf("%+v, %v, %v", w, ok, err)
		}
		if o := w.Objects[0]; o.At != event || o.Kind != AutoResetEvent || o.Waiters != 1 || o.Owner != 0 {
			t.Errorf("event %+v", o)
		}
		if o := w.Objects[1]; o.At != mutex || o.Kind != Mutex || o.Owner != holderID || o.Recursion != 3 {
			t.Errorf("mutex %+v", o)
		}
	})
}

func TestJoin(t *testing.T) {
	eachShape(t, func(t *testing.T, b *built) {
		b.waits(false, ended)
		r, thread := blocked(t, b)
		w, ok, err := r.Wait(thread)
		if err != nil || !ok || len(w.Objects) != 1 || w.Objects[0].Kind != Thread || w.Objects[0].Ends != holderID {
			t.Errorf("%+v, %v, %v", w, ok, err)
		}
	})
}

func TestNoWait(t *testing.T) {
	eachShape(t, func(t *testing.T, b *built) {
		r, thread := blocked(t, b)
		if w, ok, err := r.Wait(thread); ok || err != nil {
			t.Errorf("%+v, %v", w, err)
		}
		if _, ok := r.Blocked(stack(), stackBase, stackBase+512, holderID); ok {
			t.Error("another thread's stack")
		}
	})
}

func TestOwned(t *testing.T) {
	eachShape(t, func(t *testing.T, b *built) {
		b.owns(2)
		r, _ := blocked(t, b)
		list, err := r.Owned(&Blocked{Thread: holder})
		if err != nil || len(list) != 1 || list[0].At != mutex || list[0].Recursion != 2 || list[0].Owner != holderID {
			t.Errorf("%+v, %v", list, err)
		}
		if list, err := r.Owned(&Blocked{Thread: waiter}); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestByHandle(t *testing.T) {
	eachShape(t, func(t *testing.T, b *built) {
		b.owns(1)
		r, _ := blocked(t, b)
		if o, ok, err := r.ByHandle(6 << handleShift); err != nil || !ok || o.At != mutex || o.Owner != holderID {
			t.Errorf("%+v, %v, %v", o, ok, err)
		}
		for _, handle := range []arch.Addr{0, 1, 4, 7 << handleShift, growth << 4, 1 << 60, ^arch.Addr(0)} {
			if o, ok, _ := r.ByHandle(handle); ok {
				t.Errorf("handle %v: %+v", handle, o)
			}
		}
		if _, ok, _ := New(b, b).ByHandle(6 << handleShift); ok {
			t.Error("without having learned where the table is")
		}
	})
}

// TestContradictions: a structure that its neighbours do not confirm is not believed.
func TestContradictions(t *testing.T) {
	for name, spoil := range map[string]func(b *built){
		"node of another thread": func(b *built) { b.put32(b.at(base+record, b.s.nodeID), 1) },
		"node of another record": func(b *built) { b.put(b.at(base+record, b.s.nodeRecord), uint64(waiter)) },
		"too many objects":       func(b *built) { b.put32(b.at(waiter, b.s.record+b.s.count), maxObjects+1) },
		"nobody waits": func(b *built) {
			b.put(mutex, 0)
			b.put(mutex+8, 0)
			b.put32(b.at(mutex, b.s.waiters), 0)
		},
		"a list without an end":  func(b *built) { b.put(mutex+8, 0) },
		"an unknown kind":        func(b *built) { b.put32(b.at(mutex, b.s.kind), 99) },
		"an owner of nothing":    func(b *built) { b.put32(b.at(mutex, b.s.often), 0) },
		"an owner that does not": func(b *built) { b.put(base+record+0x800+ownedData, uint64(event)) },
		"an owner without an id": func(b *built) { b.put(b.at(holder, b.s.threadID), 0) },
		"an event that is owned": func(b *built) { b.put32(b.at(mutex, b.s.kind), uint32(ManualResetEvent)) },
	} {
		t.Run(name, func(t *testing.T) {
			eachShape(t, func(t *testing.T, b *built) {
				b.owns(1)
				b.waits(false, mutex)
				r, thread := blocked(t, b)
				if w, ok, err := r.Wait(thread); !ok || err != nil {
					t.Fatalf("%+v, %v", w, err)
				}
				spoil(b)
				if w, ok, err := r.Wait(thread); ok && err == nil || err != nil && !errors.Is(err, ErrChanging) {
					t.Errorf("%+v, %v, %v", w, ok, err)
				}
			})
		})
	}
}

// wrapped is memory of fuzz data, repeated.
type wrapped []byte

func (w wrapped) ReadMemory(p []byte, addr arch.Addr) error {
	if addr>>12&7 == 7 {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	for n := 0; n < len(p); {
		n += copy(p[n:], w[(uint64(addr)+uint64(n))%uint64(len(w)):])
	}
	return nil
}

// FuzzWait: memory with any content is read in bounded time.
func FuzzWait(f *testing.F) {
	for i := range shapes {
		b := build(&shapes[i])
		b.owns(1)
		b.waits(false, mutex)
		f.Add(b.data[:0x3000], uint64(waiter), 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint64, shape int) {
		if len(data) < 8 {
			return
		}
		mem := wrapped(data)
		r := New(mem, mem)
		stack := &target.Stack{Region: target.Region{Base: stackBase, Data: data[:min(len(data), 4096)&^7]}}
		b, ok := r.Blocked(stack, stackBase, stackBase+4096, int(binary.LittleEndian.Uint32(data)))
		if !ok {
			r.s = &shapes[uint(shape)%uint(len(shapes))]
			b = Blocked{arch.Addr(at), stack, stackBase, stackBase + 4096, 1}
		}
		r.Learn(&b)
		w, ok, err := r.Wait(&b)
		if err == nil && ok && (len(w.Objects) == 0 || len(w.Objects) > maxObjects) {
			t.Errorf("%d objects", len(w.Objects))
		}
		if list, err := r.Owned(&b); err == nil && len(list) > maxOwned {
			t.Errorf("%d mutexes", len(list))
		}
		r.lists = arch.Addr(at)
		if o, ok, err := r.ByHandle(arch.Addr(at >> 32)); ok && (err != nil || o.Kind >= kinds) {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
