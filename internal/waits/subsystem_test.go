package waits

import (
	"cmp"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/pal"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// subsystemProgram is a program of .NET 11 with a thread that has a record of its wait. The layout
// of each class is as in System.Private.CoreLib 11.0.0.
type subsystemProgram struct {
	*net11
	thread, record, waitable, node, ownership *clrtest.Class
	chain, named                              *clrtest.Class
	self                                      thread.Thread // the waiting thread
	its                                       arch.Addr     // the record of self
}

// At implements People.
func (p *subsystemProgram) At(address arch.Addr) *thread.Thread {
	for _, t := range []*thread.Thread{&p.owner, &p.self} {
		if t.Address == address {
			return t
		}
	}
	return nil
}

func newSubsystem(t *testing.T) *subsystemProgram {
	p := &subsystemProgram{net11: newNet11(t)}
	class := func(name string, fields ...clrtest.Field) *clrtest.Class {
		return &clrtest.Class{Name: name, Base: p.object, Size: 80, Fields: fields}
	}
	ref := func(name string, at uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: at, Type: clrtest.Reference}
	}
	number := func(name string, at uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: at, Type: clrtest.Int32}
	}
	p.thread = class(threadClass, ref("_waitInfo", 40), ref("_joinEvent", 48), ref("_DONT_USE_InternalThread", 56),
		number("_managedThreadId", 68))
	p.record = class(recordClass, ref("_thread", 8), ref("_waitedObjects", 16), ref("_lockedMutexesHead", 32),
		ref("_namedMutexOwnershipChain", 40), number("_waitedCount", 52),
		number("_waitSignalState", 56), number("_isWaitForAll", 57))
	p.waitable = class(waitableClass, ref("_ownershipInfo", 16), ref("_waitersHead", 24), number("_signalCount", 40),
		number("_type", 52))
	p.node = class("System.Threading.WaitSubsystem+WaitedListNode", ref("_next", 24))
	p.ownership = class(waitableClass+"+OwnershipInfo", ref("_thread", 8), ref("_next", 24),
		number("_reacquireCount", 32))
	p.chain = class("System.Threading.NamedMutexOwnershipChain", ref("_head", 16))
	p.named = class(namedClass, ref("_lockOwnerThread", 16), ref(nextNamed, 24), ref("_lockCount", 32),
		ref("_sharedData", 40))
	p.Assembly(coreLib, p.thread, p.record, p.waitable, p.node, p.ownership, p.chain, p.named)
	at := p.Room(1024)
	p.Uint32(at+p.offset("Thread", "Id"), 9)
	p.Words[at+p.offset("Thread", "OSId")] = 4250
	p.self = thread.Thread{Address: at, ManagedID: 9, OSID: 4250}
	var obj arch.Addr
	obj, p.self.Exposed = p.managed(&p.self)
	p.its = p.Object(p.record)
	p.Set(obj, p.thread, "_waitInfo", uint64(p.its))
	p.Set(p.its, p.record, "_thread", uint64(obj))
	p.state(0, false)
	return p
}

// managed adds the managed Thread object of a thread, with a handle.
func (p *subsystemProgram) managed(t *thread.Thread) (obj, handle arch.Addr) {
	obj, handle = p.Object(p.thread), p.Room(8)
	p.Set(obj, p.thread, "_DONT_USE_InternalThread", uint64(t.Address))
	p.Set(obj, p.thread, "_managedThreadId", uint64(t.ManagedID))
	p.Words[handle] = uint64(obj)
	return obj, handle
}

// state sets the state of the wait: three fields of a byte.
func (p *subsystemProgram) state(state uint64, all bool) {
	if all {
		state |= 1 << 8
	}
	p.Words[p.its+56] = state | 0xee<<16 // another field follows
}

// waitsFor has the thread wait for some objects.
func (p *subsystemProgram) waitsFor(objects ...arch.Addr) {
	p.Set(p.its, p.record, "_waitedObjects", uint64(p.Array(p.ArrayOf(p.waitable), append(objects, 0, 0)...)))
	p.Set(p.its, p.record, "_waitedCount", uint64(len(objects)))
}

// waited adds an object with so many waiting threads. owner, if there is one, has taken the object
// twice.
func (p *subsystemProgram) waited(kind uint64, waiters int, owner arch.Addr) arch.Addr {
	at := p.Object(p.waitable)
	p.Words[at+48] = kind<<32 | 0xaa<<40
	for range waiters {
		node := p.Object(p.node)
		p.Set(node, p.node, "_next", p.Words[at+24])
		p.Set(at, p.waitable, "_waitersHead", uint64(node))
	}
	if kind == 3 {
		owned := p.Object(p.ownership)
		p.Set(at, p.waitable, "_ownershipInfo", uint64(owned))
		if p.Set(owned, p.ownership, "_thread", uint64(owner)); owner != 0 {
			p.Set(owned, p.ownership, "_reacquireCount", 1)
		}
	}
	return at
}

// wait explains the wait of a thread whose frames show no wait.
func (p *subsystemProgram) wait() *snapshot.Wait {
	const base = arch.Addr(0x7000_0000_0000)
	data := make([]byte, 0x400)
	for i := range arch.Addr(len(data) / 8) {
		p.Words[base+8*i] = 0
	}
	return (&Reader{Managed: &p.runtime.Managed, Runtime: p.runtime, People: p, Live: p}).Wait(&Subject{
		Frames: []snapshot.Frame{
			{Kind: snapshot.Native, SP: uint64(base)},
			{Kind: snapshot.Managed, Module: "Shop", Method: "Shop.Orders.Work", SP: uint64(base) + 0x100},
		},
		Stack: &target.Stack{Region: target.Region{Base: base, Data: data}}, Blocked: true, Thread: p.self,
	})
}

// TestSubsystem: a thread's record describes the wait, even if no frame shows a wait.
func TestSubsystem(t *testing.T) {
	p := newSubsystem(t)
	owner, _ := p.managed(&p.owner)
	semaphore, mutex, free := p.waited(2, 3, 0), p.waited(3, 1, owner), p.waited(3, 1, 0)
	p.waitsFor(semaphore)
	if w := p.wait(); w == nil || w.Kind != snapshot.HandleOne || w.Type != "System.Threading.Semaphore" ||
		w.Waiters != 3 || !w.Certain || w.Lock != uint64(semaphore) {
		t.Errorf("a semaphore: %+v", w)
	}
	p.waitsFor(mutex)
	if w := p.wait(); w == nil || w.Kind != snapshot.HandleOne || w.Type != mutexClass || w.Owner == nil ||
		w.Owner.OSThreadID != 4242 || w.Recursion != 2 || !w.Certain {
		t.Errorf("a mutex: %+v", w)
	}
	p.waitsFor(semaphore, free)
	if w := p.wait(); w == nil || w.Kind != snapshot.HandleAny || w.Detail != "2 handles" || !w.Certain {
		t.Errorf("any: %+v", w)
	}
	p.waitsFor(free, mutex)
	p.state(1, true)
	if w := p.wait(); w == nil || w.Kind != snapshot.HandleAll || w.Owner == nil || w.Owner.OSThreadID != 4242 {
		t.Errorf("all: %+v", w)
	}
	p.waitsFor()
	p.state(1, false)
	if w := p.wait(); w == nil || w.Kind != snapshot.ThreadSleep || !w.Certain {
		t.Errorf("sleep: %+v", w)
	}
	p.waitsFor(semaphore)
	p.state(notWaiting, false)
	if w := p.wait(); w != nil {
		t.Errorf("a record of an earlier wait: %+v", w)
	}
}

// TestSubsystemChanging: contradictory objects, or lists without an end, say nothing for certain.
func TestSubsystemChanging(t *testing.T) {
	for name, spoil := range map[string]func(p *subsystemProgram, semaphore arch.Addr){
		"the record of another thread": func(p *subsystemProgram, _ arch.Addr) {
			p.Set(p.its, p.record, "_thread", uint64(p.Object(p.thread)))
		},
		"nobody waits for it": func(p *subsystemProgram, at arch.Addr) { p.Set(at, p.waitable, "_waitersHead", 0) },
		"no such kind":        func(p *subsystemProgram, at arch.Addr) { p.Words[at+48] = 9 << 32 },
		"too many":            func(p *subsystemProgram, _ arch.Addr) { p.Set(p.its, p.record, "_waitedCount", 65) },
		"waiters in a circle": func(p *subsystemProgram, at arch.Addr) {
			head := arch.Addr(p.Words[at+24])
			p.Set(head, p.node, "_next", uint64(head))
		},
		"another class": func(p *subsystemProgram, _ arch.Addr) { p.waitsFor(p.Object(p.object)) },
	} {
		p := newSubsystem(t)
		semaphore := p.waited(2, 1, 0)
		p.waitsFor(semaphore)
		if w := p.wait(); w == nil || !w.Certain {
			t.Fatalf("%s: not spoilt, %+v", name, w)
		}
		if spoil(p, semaphore); p.wait() != nil {
			t.Errorf("%s: %+v", name, p.wait())
		}
	}
}

// TestSubsystemOwned: a thread has a list of the mutexes that the thread owns.
func TestSubsystemOwned(t *testing.T) {
	p := newSubsystem(t)
	own := arch.Addr(p.Words[p.self.Exposed])
	first, second := p.waited(3, 0, own), p.waited(3, 2, own)
	p.Set(p.its, p.record, "_lockedMutexesHead", uint64(first))
	p.Set(arch.Addr(p.Words[first+16]), p.ownership, "_next", uint64(second))
	r := &Reader{Managed: &p.runtime.Managed, Runtime: p.runtime, People: p, Live: p}
	owned, err := r.owned(&p.self)
	if err != nil || len(owned) != 2 || owned[0].At != first || owned[1].At != second || owned[1].Waiters != 2 ||
		owned[1].Kind != pal.Mutex || owned[1].Recursion != 2 {
		t.Errorf("%+v, %v", owned, err)
	}
	other, _ := p.managed(&p.owner)
	p.Set(arch.Addr(p.Words[second+16]), p.ownership, "_thread", uint64(other))
	if owned, err := r.owned(&p.self); err == nil {
		t.Errorf("one of another thread: %+v", owned)
	}
	p.Set(arch.Addr(p.Words[first+16]), p.ownership, "_next", uint64(first))
	if owned, err := r.owned(&p.self); err == nil {
		t.Errorf("a list without an end: %d", len(owned))
	}
}

// TestNamedOwned: a thread has a list of the named mutexes that the thread owns.
func TestNamedOwned(t *testing.T) {
	p := newSubsystem(t)
	own, other := arch.Addr(p.Words[p.self.Exposed]), p.Object(p.thread)
	r := &Reader{Managed: &p.runtime.Managed, Runtime: p.runtime, People: p, Live: p}
	if list, err := r.withNamed(nil, &p.self); err != nil || list != nil {
		t.Errorf("none: %+v, %v", list, err)
	}
	chain := p.Object(p.chain)
	p.Set(p.its, p.record, "_namedMutexOwnershipChain", uint64(chain))
	var last arch.Addr
	for i := range uint64(2) {
		at := p.Object(p.named)
		p.Set(at, p.named, "_lockOwnerThread", uint64(own))
		p.Set(at, p.named, "_lockCount", i+1)
		p.Set(at, p.named, "_sharedData", 0x7000+i)
		p.Set(at, p.named, nextNamed, p.Words[chain+16])
		p.Set(chain, p.chain, "_head", uint64(at))
		last = cmp.Or(last, at)
	}
	list, err := r.withNamed([]snapshot.Wait{{Lock: 0x7000}}, &p.self) // 0x7000 is on the stack
	if err != nil || len(list) != 2 || list[1].Lock != 0x7001 || list[1].Recursion != 2 || list[1].Detail != Named {
		t.Errorf("%+v, %v", list, err)
	}
	p.Set(last, p.named, "_lockOwnerThread", uint64(other))
	if list, err := r.withNamed(nil, &p.self); err == nil {
		t.Errorf("one of another thread: %+v", list)
	}
	p.Set(last, p.named, "_lockOwnerThread", uint64(own))
	p.Set(last, p.named, nextNamed, uint64(last))
	if list, err := r.withNamed(nil, &p.self); err == nil {
		t.Errorf("a list without an end: %d", len(list))
	}
}
