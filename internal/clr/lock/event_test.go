package lock

import (
	"encoding/binary"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/target"
)

// eventProgram is a program of .NET 11 with Locks that have events.
type eventProgram struct {
	*managedProgram
	lock, condition, event, safe *clrtest.Class
}

func newEventProgram(t testing.TB) *eventProgram {
	p := &eventProgram{managedProgram: newManagedProgram(t)}
	object := &clrtest.Class{Name: "System.Object", Size: 16}
	p.lock = &clrtest.Class{Name: lockClass, Base: object, Size: 40, Fields: []clrtest.Field{
		{Name: "_waitEventOrCondition", Offset: 8, Type: clrtest.Reference},
		{Name: "_owningThreadId", Offset: 16, Type: clrtest.Int32},
		{Name: "_state", Offset: 20, Type: clrtest.Int32},
		{Name: "_recursionCount", Offset: 24, Type: clrtest.Int32},
	}}
	p.condition = &clrtest.Class{Name: conditionClass, Base: object, Size: 32, Fields: []clrtest.Field{
		{Name: "_lock", Offset: 8, Type: clrtest.Reference},
		{Name: "_waitEvent", Offset: 16, Type: clrtest.Reference},
	}}
	p.event = &clrtest.Class{Name: waitHandleClass, Base: object, Size: 24, Fields: []clrtest.Field{
		{Name: "_waitHandle", Offset: 8, Type: clrtest.Reference},
	}}
	p.safe = &clrtest.Class{Name: safeHandleClass, Base: object, Size: 24, Fields: []clrtest.Field{
		{Name: "handle", Offset: 8, Type: clrtest.Reference},
	}}
	p.Assembly("System.Private.CoreLib", object, p.lock, p.condition, p.event, p.safe)
	return p
}

// withHandle returns a Lock with an event with a handle. condition: the event belongs to a Condition of the Lock.
func (p *eventProgram) withHandle(id uint64, condition bool) arch.Addr {
	lock, event, safe := p.Object(p.lock), p.Object(p.event), p.Object(p.safe)
	p.Set(safe, p.safe, "handle", id)
	p.Set(event, p.event, "_waitHandle", uint64(safe))
	p.Set(lock, p.lock, "_waitEventOrCondition", uint64(event))
	if condition {
		at := p.Object(p.condition)
		p.Set(at, p.condition, "_waitEvent", uint64(event))
		p.Set(lock, p.lock, "_waitEventOrCondition", uint64(at))
	}
	return lock
}

// monitor makes a Lock the monitor of the program's object.
func (p *eventProgram) monitor(lock arch.Addr) {
	p.Words[p.handle] = uint64(lock)
	p.Words[p.block+arch.Addr(p.s.m.Lock)] = uint64(p.handle)
}

// TestEventOf: events identify a Lock by the handle that the Lock's waiters wait for.
func TestEventOf(t *testing.T) {
	p := newEventProgram(t)
	for _, condition := range []bool{false, true} {
		if id, err := p.s.EventOf(p.withHandle(0x7777, condition)); err != nil || id != 0x7777 {
			t.Errorf("Condition %v: %#x, %v", condition, id, err)
		}
	}
	if id, err := p.s.EventOf(p.Object(p.lock)); err != nil || id != 0 {
		t.Errorf("nobody has waited: %#x, %v", id, err)
	}
	odd := p.Object(p.lock)
	p.Set(odd, p.lock, "_waitEventOrCondition", uint64(p.obj))
	for name, at := range map[string]arch.Addr{"no Lock": p.obj, "no event": odd, "no memory": 0x123450} {
		if id, err := p.s.EventOf(at); err == nil {
			t.Errorf("%s: %#x", name, id)
		}
	}
}

// TestOfEvent: OfEvent finds the monitor of an event, even if the monitor's Lock has moved, and takes no other
// monitor. If Look cannot follow a Lock, Look does not claim to have found all.
func TestOfEvent(t *testing.T) {
	p := newEventProgram(t)
	lock := p.withHandle(0x7777, false)
	p.monitor(lock)
	found := func(id uint64) arch.Addr {
		t.Helper()
		m, ok := p.s.OfEvent(id)
		if ok && m.Object != p.obj {
			t.Errorf("%#x is the monitor of %v, not of %v", id, m.Object, p.obj)
		}
		return m.Lock
	}
	if at := found(0x7777); at != 0 || !p.s.Due(false) {
		t.Errorf("before a look: %v", at)
	}
	if !p.s.Look() || p.s.Due(false) {
		t.Error("a look has not found all, or another is due at once")
	}
	if at := found(0x7777); at != lock {
		t.Errorf("%v, want %v", at, lock)
	}
	if at := found(0x8888); at != 0 {
		t.Errorf("no monitor's event: %v", at)
	}
	moved := p.withHandle(0x7777, true)
	p.monitor(moved)
	if at := found(0x7777); at != moved {
		t.Errorf("moved: %v, want %v", at, moved)
	}
	p.monitor(p.withHandle(0x9999, false))
	if at := found(0x7777); at != 0 {
		t.Errorf("another Lock: %v", at)
	}
	if !p.s.Look() || found(0x9999) == 0 {
		t.Error("the other Lock's event is not found")
	}
	p.monitor(p.obj) // no Lock
	if p.s.Look() || found(0x8888) != 0 {
		t.Error("a Lock that cannot be followed is followed")
	}
}

// TestEntered: Entered finds the monitor of a Lock at the Lock's address of the last look, and not at the address of
// another Lock.
func TestEntered(t *testing.T) {
	p := newEventProgram(t)
	lock := p.Object(p.lock)
	p.monitor(lock)
	if m, ok := p.s.Entered(lock); ok {
		t.Errorf("before a look: %+v", m)
	}
	p.s.Look()
	if m, ok := p.s.Entered(lock); !ok || m.Object != p.obj {
		t.Errorf("%+v, %v", m, ok)
	}
	other := p.Object(p.lock)
	p.monitor(other)
	for _, at := range []arch.Addr{lock, other} {
		if m, ok := p.s.Entered(at); ok {
			t.Errorf("%v: %+v, of a look at something else", at, m)
		}
	}
}

// TestInfo: the newest record of a thread names the Lock or Condition that the thread waits for; a bad record names
// nothing.
func TestInfo(t *testing.T) {
	const base, slot, at = arch.Addr(0x7000_0000), 64, 128
	const first = arch.Addr(0x6500_0058) // in the ThreadLocalData
	p := newEventProgram(t)
	lock, condition := p.Object(p.lock), p.Object(p.condition)
	p.Set(condition, p.condition, "_lock", uint64(lock))
	stack := func(newest, holds, of, what uint64) *target.Stack {
		s := &target.Stack{Region: target.Region{Base: base, Data: make([]byte, 256)}}
		binary.LittleEndian.PutUint64(s.Data[slot:], of)
		binary.LittleEndian.PutUint64(s.Data[at:], holds)
		binary.LittleEndian.PutUint64(s.Data[at+8:], what)
		s.Extra = []target.Region{{Base: first, Data: binary.LittleEndian.AppendUint64(nil, newest)}}
		return s
	}
	const never = 0xffff_ffff << 32
	here, its := uint64(base+at), uint64(base+slot)
	for _, tt := range []struct {
		name  string
		stack *target.Stack
		want  Info
		ok    bool
	}{
		{"a Lock", stack(here, its, uint64(lock), ofLock|never), Info{lock, false, -1, base + at, base + slot}, true},
		{
			"a Condition, at most 1 s", stack(here, its, uint64(condition), ofCondition|1000<<32),
			Info{condition, true, 1000, base + at, base + slot}, true,
		},
		{"nothing", stack(0, its, uint64(lock), ofLock), Info{}, false},
		{"beyond the stack", stack(uint64(base+4096), its, uint64(lock), ofLock), Info{}, false},
		{"unaligned", stack(here+4, its, uint64(lock), ofLock), Info{}, false},
		{"the object beyond the stack", stack(here, uint64(base+4096), uint64(lock), ofLock), Info{}, false},
		{"no object", stack(here, its, 0, ofLock), Info{}, false},
		{"another kind", stack(here, its, uint64(lock), 1), Info{}, false},
		{"a timeout that is none", stack(here, its, uint64(lock), ofLock|0x8000_0000<<32), Info{}, false},
	} {
		got, ok := p.s.Info(first, tt.stack)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, ok, tt.want)
			continue
		}
		if of, err := p.s.LockOf(&got); ok && (err != nil || of != lock) {
			t.Errorf("%s: the Lock is %v, %v, want %v", tt.name, of, err, lock)
		}
	}
	if of, err := p.s.LockOf(&Info{Object: lock, Condition: true}); err == nil {
		t.Errorf("no Condition has the Lock %v", of)
	}
}
