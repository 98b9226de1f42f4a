package lock

import (
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// The monitors of .NET 11 in the tests are constructed: the contract SyncBlock has their layout.

// managedProgram is a program of .NET 11 with an object whose SyncBlock is empty.
type managedProgram struct {
	*clrtest.Program
	s          *Store
	lock, wait *clrtest.Class
	obj, block arch.Addr
	handle     arch.Addr
}

func newManagedProgram(t testing.TB) *managedProgram {
	p := &managedProgram{Program: clrtest.NewProgram(t, clrtest.Net11), handle: 0x7500_0000}
	object := &clrtest.Class{Name: "System.Object", Size: 16}
	p.lock = &clrtest.Class{Name: "System.Threading.Lock", Base: object, Size: 40, Fields: []clrtest.Field{
		{Name: "_waitEventOrCondition", Offset: 8, Type: clrtest.Reference},
		{Name: "_owningThreadId", Offset: 16, Type: clrtest.Int32},
		{Name: "_state", Offset: 20, Type: clrtest.Int32},
		{Name: "_recursionCount", Offset: 24, Type: clrtest.Int32},
	}}
	p.wait = &clrtest.Class{Name: "System.Threading.AutoResetEvent", Base: object, Size: 24}
	p.Assembly("System.Private.CoreLib", object, p.lock, p.wait)
	p.obj, p.block = p.Object(object), p.Room(128)
	p.s = newStore(t, p, clrtest.Net11)
	l := &p.s.l
	p.Words[l.Table] = uint64(entriesAt)
	p.Zero(entriesAt, 16*(index+2))
	p.Zero(p.handle, 8)
	cache := p.Room(256)
	p.Zero(l.Cache, 8)
	p.Words[l.Cache] = uint64(cache)
	p.Uint32(cache+arch.Addr(l.Free), index+1)
	for i := range arch.Addr(index) {
		p.Words[entriesAt+16*i+arch.Addr(l.Object)] = 1 // free
	}
	p.Words[p.entry()+arch.Addr(l.Block)] = uint64(p.block)
	p.Words[p.entry()+arch.Addr(l.Object)] = uint64(p.obj)
	p.Uint32(p.obj-4, wordHashOrIndex|index)
	return p
}

func (p *managedProgram) entry() arch.Addr { return entriesAt + 16*index }

// inflate gives the SyncBlock a Lock that a thread holds.
func (p *managedProgram) inflate(owner, state, recursion uint64) arch.Addr {
	at := p.Object(p.lock)
	p.Set(at, p.lock, "_owningThreadId", owner)
	p.Set(at, p.lock, "_state", state)
	p.Set(at, p.lock, "_recursionCount", recursion)
	p.Words[p.handle] = uint64(at)
	p.Words[p.block+arch.Addr(p.s.m.Lock)] = uint64(p.handle)
	return at
}

// TestManagedThinLock: the bits in front of the object, and the bits in the SyncBlock if the object has a SyncBlock.
func TestManagedThinLock(t *testing.T) {
	p := newManagedProgram(t)
	want := Monitor{Object: p.obj, Block: p.block, ByManagedID: true}
	if m, err := p.s.Of(p.obj); err != nil || m != want {
		t.Errorf("free: %+v, %v", m, err)
	}
	p.Uint32(p.block+arch.Addr(p.s.m.Thin), 7|2<<16)
	want.Owner, want.Recursion = 7, 3
	if m, err := p.s.Of(p.obj); err != nil || m != want {
		t.Errorf("in the SyncBlock: %+v, %v, want %+v", m, err, want)
	}
	p.Uint32(p.obj-4, 9|1<<16)
	want = Monitor{Object: p.obj, Thin: true, ByManagedID: true, Owner: 9, Recursion: 2}
	if m, err := p.s.Of(p.obj); err != nil || m != want {
		t.Errorf("in front of the object: %+v, %v", m, err)
	}
	if !want.HeldBy(0x5000, 4242, 9) || want.HeldBy(0x5000, 9, 4242) {
		t.Error("the owner has a managed thread id")
	}
}

// TestManagedMonitor: a monitor that a thread has waited for is a Lock, and the Lock counts the waiters.
func TestManagedMonitor(t *testing.T) {
	p := newManagedProgram(t)
	p.Uint32(p.block+arch.Addr(p.s.m.Thin), 3) // out of date: the Lock counts
	lock := p.inflate(7, 5<<7|lockLocked, 1)
	want := Monitor{Object: p.obj, Block: p.block, Lock: lock, ByManagedID: true, Owner: 7, Recursion: 2,
		Waiters: 5}
	if m, err := p.s.Of(p.obj); err != nil || m != want {
		t.Errorf("%+v, %v, want %+v", m, err, want)
	}
	if held, all, err := p.s.Held(); err != nil || !all || len(held) != 1 || held[0] != want {
		t.Errorf("held: %+v, %v, %v", held, all, err)
	}
	if m, ok, err := p.s.OfLock(lock); err != nil || !ok || m != want {
		t.Errorf("by its Lock: %+v, %v, %v", m, ok, err)
	}
	if m, ok, err := p.s.OfLock(p.Object(p.lock)); err != nil || ok {
		t.Errorf("no monitor's Lock: %+v, %v", m, err)
	}
	if m, err := p.s.Lock(lock); err != nil || m.Owner != 7 || !m.ByManagedID || m.Waiters != 5 {
		t.Errorf("as a Lock: %+v, %v", m, err)
	}
	p.inflate(0, 5<<7, 0)
	if m, err := p.s.Of(p.obj); err != nil || m.Owner != 0 || m.Recursion != 0 || m.Lock == 0 {
		t.Errorf("free: %+v, %v", m, err)
	}
	if _, ok := p.s.BlockingRange(threadAt); ok || !p.s.Managed() {
		t.Error("threads of .NET 11 do not say what they are blocked on")
	}
}

// TestManagedTableEnd: entries of freed blocks may be empty. The table ends at the end that the runtime names, and
// the memory behind is not read.
func TestManagedTableEnd(t *testing.T) {
	p := newManagedProgram(t)
	p.inflate(7, lockLocked, 0)
	p.Words[entriesAt+16+arch.Addr(p.s.l.Object)] = 0 // an entry that looks unused
	if held, all, err := p.s.Held(); err != nil || !all || len(held) != 1 {
		t.Errorf("an empty entry: %d held, %v, %v", len(held), all, err)
	}
	cache := arch.Addr(p.Words[p.s.l.Cache])
	p.Uint32(cache+arch.Addr(p.s.l.Free), index)
	if held, all, err := p.s.Held(); err != nil || !all || len(held) != 0 {
		t.Errorf("beyond the end: %d held, %v, %v", len(held), all, err)
	}
	p.Uint32(cache+arch.Addr(p.s.l.Free), 1<<20) // more than can be read
	if _, all, _ := p.s.Held(); all {
		t.Error("a table that could not be read to its end")
	}
}

// TestManagedChanging: a lock that contradicts itself is an error.
func TestManagedChanging(t *testing.T) {
	for name, spoil := range map[string]func(p *managedProgram){
		"owner, not held": func(p *managedProgram) { p.inflate(7, 0, 0) },
		"held by nobody":  func(p *managedProgram) { p.inflate(0, lockLocked, 0) },
		"large owner":     func(p *managedProgram) { p.inflate(1<<31, lockLocked, 0) },
		"free, recursion": func(p *managedProgram) { p.inflate(0, 0, 1) },
		"another's handle": func(p *managedProgram) {
			p.inflate(7, lockLocked, 0)
			p.Words[p.handle] = uint64(p.Object(p.wait))
		},
		"another's block": func(p *managedProgram) { p.Words[p.entry()+arch.Addr(p.s.l.Object)] = uint64(p.block) },
		"no block":        func(p *managedProgram) { p.Words[p.entry()+arch.Addr(p.s.l.Block)] = 0 },
	} {
		p := newManagedProgram(t)
		spoil(p)
		if m, err := p.s.Of(p.obj); !errors.Is(err, ErrChanging) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	p := newManagedProgram(t)
	p.inflate(7, lockLocked, 0)
	p.Words[p.handle] = 0x1238 // no object
	if m, err := p.s.Of(p.obj); err == nil {
		t.Errorf("%+v", m)
	}
}

// FuzzManagedMonitor: whatever the memory has, nothing panics, and a monitor with an owner is held.
func FuzzManagedMonitor(f *testing.F) {
	f.Add(uint32(wordHashOrIndex|index), uint32(7), uint64(0x7500_0000), uint32(7), uint32(1), uint32(0))
	p := newManagedProgram(f)
	at := p.inflate(7, lockLocked, 0)
	fields := arch.Addr(16) // of the Lock, from the first of the three on
	f.Fuzz(func(t *testing.T, word, thin uint32, handle uint64, owner, state, often uint32) {
		p.Uint32(p.obj-4, word)
		p.Uint32(p.block+arch.Addr(p.s.m.Thin), thin)
		p.Words[p.block+arch.Addr(p.s.m.Lock)] = handle
		for i, v := range []uint32{owner, state, often} {
			p.Uint32(at+fields+4*arch.Addr(i), v)
		}
		if m, err := p.s.Of(p.obj); err == nil &&
			((m.Owner != 0) != (m.Recursion != 0) || !m.ByManagedID && m.Owner != 0) {
			t.Errorf("%+v", m)
		}
		_, _, _ = p.s.Held()
	})
}
