package waits

import (
	"encoding/binary"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// The program of .NET 11 in these tests is constructed: the contracts of the program, and the
// source of the monitor, tell the layout. Thread 7 of the program holds monitors, and another
// thread waits.
type net11 struct {
	*clrtest.Program
	everybody
	t       *testing.T
	d       descriptor
	runtime *clr.Runtime
	owner   thread.Thread

	object, lock, condition, waiter *clrtest.Class
}

// descriptor is where a runtime has its structures.
type descriptor interface {
	Offset(typ, field string) (uint32, bool)
	Global(name string) (uint64, bool)
}

func (p *net11) Managed(id int) *thread.Thread {
	if id == p.owner.ManagedID {
		return &p.owner
	}
	return nil
}

func (p *net11) offset(typ, field string) arch.Addr {
	p.t.Helper()
	off, ok := p.d.Offset(typ, field)
	if !ok {
		p.t.Fatalf("no %s.%s", typ, field)
	}
	return arch.Addr(off)
}

func newNet11(t *testing.T) *net11 {
	t.Helper()
	p := &net11{Program: clrtest.NewProgram(t, clrtest.Net11), t: t, d: clrtest.Descriptor(t, clrtest.Net11)}
	ref := func(name string, at uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: at, Type: clrtest.Reference}
	}
	number := func(name string, at uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: at, Type: clrtest.Int32}
	}
	p.object = &clrtest.Class{Name: "System.Object", Size: 16}
	p.lock = &clrtest.Class{Name: lockClass, Base: p.object, Size: 40, Fields: []clrtest.Field{
		ref("_waitEventOrCondition", 8), number("_owningThreadId", 16), number("_state", 20),
		number("_recursionCount", 24),
	}}
	p.condition = &clrtest.Class{Name: conditionClass, Base: p.object, Size: 40, Fields: []clrtest.Field{
		ref("_lock", 8), ref("_waitEvent", 16), ref("_waitersHead", 24), ref("_waitersTail", 32),
	}}
	p.waiter = &clrtest.Class{Name: conditionClass + "+Waiter", Base: p.object, Size: 32, Fields: []clrtest.Field{
		ref("next", 8), ref("prev", 16), ref("ev", 24),
	}}
	p.Assembly(coreLib, p.object, p.lock, p.condition, p.waiter)
	var err error
	if p.runtime, err = clr.New(p, clrtest.Descriptor(t, clrtest.Net11), arch.AMD64); err != nil {
		t.Fatal(err)
	}
	at := p.Room(1024)
	p.Uint32(at+p.offset("Thread", "Id"), 7)
	p.Words[at+p.offset("Thread", "OSId")] = 4242
	p.owner = thread.Thread{Address: at, ManagedID: 7, OSID: 4242}
	table, _ := p.d.Global("SyncTableEntries")
	entries := p.Room(16 * 8)
	p.Words[arch.Addr(table)] = uint64(entries)
	for i := range arch.Addr(7) {
		p.Words[entries+16*i+8] = 1 // free; the last entry was never used
	}
	variable, _ := p.d.Global("SyncBlockCache")
	cache := p.Room(256)
	p.Words[arch.Addr(variable)] = uint64(cache)
	p.Uint32(cache+p.offset("SyncBlockCache", "FreeSyncTableIndex"), 7)
	return p
}

// monitor adds an object with a Lock for its monitor, and an entry of the sync table. A thread
// holds the Lock as often as that.
func (p *net11) monitor(entry int, owner, often uint64) (obj, lock arch.Addr) {
	obj, lock = p.Object(p.object), p.held(owner, often)
	handle, block := p.Room(8), p.Room(128)
	p.Words[handle] = uint64(lock)
	p.Words[block+p.offset("SyncBlock", "Lock")] = uint64(handle)
	table, _ := p.d.Global("SyncTableEntries")
	at := arch.Addr(p.Words[arch.Addr(table)]) + 16*arch.Addr(entry)
	p.Words[at+p.offset("SyncTableEntry", "SyncBlock")] = uint64(block)
	p.Words[at+p.offset("SyncTableEntry", "Object")] = uint64(obj)
	p.Uint32(obj-4, 1<<27|uint32(entry))
	return obj, lock
}

// held adds a Lock held by a thread.
func (p *net11) held(owner, often uint64) arch.Addr {
	at := p.Object(p.lock)
	p.Set(at, p.lock, "_owningThreadId", owner)
	if owner != 0 {
		p.Set(at, p.lock, "_state", 1|3<<7) // three wait
		p.Set(at, p.lock, "_recursionCount", often-1)
	}
	return at
}

// waits returns the wait of a thread in methods, leaf first, with records on the stack. A record
// has a kind, an object, and a timeout in ms.
func (p *net11) waits(records [][3]uint64, methods ...string) *snapshot.Wait {
	p.t.Helper()
	const base, frame = arch.Addr(0x7000_0000_0000), 0x100
	data := make([]byte, frame*(len(methods)+2))
	for i, r := range records {
		at := 64 * (i + 1)
		for k, v := range []uint64{uint64(base) + uint64(at) + 32, r[0] | r[2]<<32, 0, 0, r[1]} {
			binary.LittleEndian.PutUint64(data[at+8*k:], v)
		}
	}
	frames := []snapshot.Frame{{Kind: snapshot.Native, SP: uint64(base)}}
	for i, m := range methods {
		frames = append(frames, snapshot.Frame{
			Kind: snapshot.Managed, Module: coreLib, Method: "System.Threading." + m,
			SP: uint64(base) + frame*uint64(i),
		})
	}
	frames = append(frames, snapshot.Frame{
		Kind: snapshot.Managed, Module: "Shop", Method: "Shop.Orders.Work",
		SP: uint64(base) + frame*uint64(len(methods)),
	})
	for i := 0; i+8 <= len(data); i += 8 {
		p.Words[base+arch.Addr(i)] = binary.LittleEndian.Uint64(data[i:])
	}
	r := &Reader{Managed: &p.runtime.Managed, Runtime: p.runtime, People: p, Live: p}
	return r.Wait(&Subject{
		Frames: frames, Stack: &target.Stack{Region: target.Region{Base: base, Data: data}}, Blocked: true,
		Thread: thread.Thread{Address: 0x5000, ManagedID: 9, OSID: 4250},
	})
}

// The kinds of a record of a wait (ThreadBlockingInfo.cs, ObjectKind), and the timeout of a wait
// without a limit.
const (
	ofLock      = 2
	ofCondition = 3
	forever     = 0xffff_ffff
)

// TestManagedMonitorEnter: a thread that wants to enter a monitor of .NET 11 waits for an object
// held by thread 7.
func TestManagedMonitorEnter(t *testing.T) {
	p := newNet11(t)
	obj, lock := p.monitor(3, 7, 2)
	w := p.waits([][3]uint64{{ofLock, uint64(lock), forever}},
		"WaitHandle.WaitOneNoCheck", "Lock.TryEnterSlow", "Lock.Enter", "Monitor.Enter")
	if w == nil || w.Kind != snapshot.MonitorEnter || w.Object != uint64(obj) || w.Type != "object" || !w.Certain ||
		w.Owner == nil || w.Owner.OSThreadID != 4242 || w.Owner.ManagedThreadID != 7 || w.Recursion != 2 ||
		w.Waiters != 3 || w.Timeout != snapshot.Forever || w.Lock == 0 {
		t.Errorf("%+v", w)
	}
	held, all := (&Reader{Managed: &p.runtime.Managed, Runtime: p.runtime, People: p, Live: p}).Monitors()
	if list := held[4242]; !all || len(held) != 1 || len(list) != 1 || list[0].Object != uint64(obj) ||
		list[0].Recursion != 2 {
		t.Errorf("held: %+v, %v", held, all)
	}
	_, other := p.monitor(4, 99, 1) // no thread has this id any more
	w = p.waits([][3]uint64{{ofLock, uint64(other), 5000}}, "Lock.TryEnterSlow", "Monitor.TryEnter")
	if w == nil || w.Kind != snapshot.MonitorEnter || w.Owner == nil || w.Owner.OSThreadID != 0 ||
		w.Owner.ManagedThreadID != 99 || w.Timeout != 5*time.Second {
		t.Errorf("an owner that has ended: %+v", w)
	}
	_, free := p.monitor(5, 0, 0)
	if w = p.waits([][3]uint64{{ofLock, uint64(free), forever}}, "Lock.TryEnterSlow", "Monitor.Enter"); w == nil ||
		w.Certain {
		t.Errorf("nobody is in the way: %+v", w)
	}
	unknown := p.held(7, 1)
	w = p.waits([][3]uint64{{ofLock, uint64(unknown), forever}}, "Lock.TryEnterSlow", "Monitor.Enter")
	if w == nil || w.Kind != snapshot.MonitorEnter || w.Object != 0 || w.Owner == nil || w.Owner.OSThreadID != 4242 {
		t.Errorf("a Lock that is in no SyncBlock: %+v", w)
	}
}

// TestManagedLock: a Lock that the program's own code enters is no monitor.
func TestManagedLock(t *testing.T) {
	p := newNet11(t)
	lock := p.held(7, 1)
	w := p.waits([][3]uint64{{ofLock, uint64(lock), forever}}, "Lock.TryEnterSlow", "Lock.Enter")
	if w == nil || w.Kind != snapshot.LockEnter || w.Object != uint64(lock) || !w.Certain || w.Owner == nil ||
		w.Owner.OSThreadID != 4242 || w.Waiters != 3 {
		t.Errorf("%+v", w)
	}
	w = p.waits([][3]uint64{{ofLock, uint64(lock), forever}}, "Lock.TryEnterSlow", "Lock.Enter", "Tasks.Task.Wait")
	if w == nil || w.Kind != snapshot.TaskWait || w.Object != 0 {
		t.Errorf("a primitive that is made of a Lock: %+v", w)
	}
}

// TestManagedMonitorWait: a thread in Monitor.Wait is in the Wait of a Condition, and the Condition
// knows the other waiters. A thread that has been woken wants to enter.
func TestManagedMonitorWait(t *testing.T) {
	p := newNet11(t)
	obj, lock := p.monitor(3, 7, 1)
	condition, first, second := p.Object(p.condition), p.Object(p.waiter), p.Object(p.waiter)
	p.Set(condition, p.condition, "_lock", uint64(lock))
	p.Set(condition, p.condition, "_waitersHead", uint64(first))
	p.Set(first, p.waiter, "next", uint64(second))
	in := []string{"WaitHandle.WaitOneNoCheck", "Condition.Wait", "Lock.Wait", "Monitor.Wait"}
	record := [3]uint64{ofCondition, uint64(condition), 60_000}
	w := p.waits([][3]uint64{record}, in...)
	if w == nil || w.Kind != snapshot.MonitorWait || w.Object != uint64(obj) || !w.Certain || w.Owner != nil ||
		w.Waiters != 2 || w.Timeout != time.Minute {
		t.Errorf("%+v", w)
	}
	woken := [][3]uint64{record, {ofLock, uint64(lock), forever}}
	w = p.waits(woken, append([]string{"Lock.TryEnterSlow", "Lock.Reenter"}, in[1:]...)...)
	if w == nil || w.Kind != snapshot.MonitorEnter || w.Object != uint64(obj) || w.Owner == nil ||
		w.Timeout != snapshot.Forever {
		t.Errorf("woken: %+v", w)
	}
	p.Set(second, p.waiter, "next", uint64(first))
	if w = p.waits([][3]uint64{record}, in...); w == nil || w.Kind != snapshot.MonitorWait || w.Certain {
		t.Errorf("a list without an end: %+v", w)
	}
	w = p.waits([][3]uint64{record}, "Condition.Wait", "Monitor.Wait", "SemaphoreSlim.WaitUntilCountOrTimeout",
		"SemaphoreSlim.Wait")
	if w == nil || w.Kind != snapshot.SemaphoreWait || w.Object != 0 {
		t.Errorf("a part of a SemaphoreSlim: %+v", w)
	}
}
