package lock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

const (
	entriesAt = arch.Addr(0x7000_0000)
	blockAt   = arch.Addr(0x7100_0000)
	objectAt  = arch.Addr(0x7200_0010)
	linkAt    = arch.Addr(0x7300_0000)
	threadAt  = arch.Addr(0x7400_0000)
	index     = 17
)

func newStore(t testing.TB, mem target.Memory, descriptor string) *Store {
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
	s, err := New(mem, mem, d, objects)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// held is a monitor with the holder 4242, recursion 2, three waiters, and one thread in Monitor.Wait.
func held(s *Store) clrtest.Words {
	mem := clrtest.Words{}
	mem[s.l.Table] = uint64(entriesAt)
	mem.Zero(entriesAt, 16*(index+1))
	at := entriesAt + 16*index
	mem[at+arch.Addr(s.l.Block)], mem[at+arch.Addr(s.l.Object)] = uint64(blockAt), uint64(objectAt)
	mem.Zero(objectAt-8, 16)
	mem.Uint32(objectAt-4, wordHashOrIndex|index)
	mem.Zero(blockAt, 128)
	mem.Uint32(blockAt+arch.Addr(s.l.State), 3<<waiterShift|stateLocked)
	mem.Uint32(blockAt+arch.Addr(s.l.Recursion), 2)
	mem[blockAt+holderAt(s)] = 5
	mem[blockAt+arch.Addr(s.l.OSID)] = 4242
	mem.Uint32(blockAt+arch.Addr(s.l.Index), 1<<31|index)
	mem[blockAt+arch.Addr(s.l.Link)] = uint64(linkAt)
	mem[linkAt] = 0
	return mem
}

func holderAt(s *Store) arch.Addr { return arch.Addr(min(s.l.Holder, s.l.HolderID)) }

func each(t *testing.T, test func(t *testing.T, descriptor string)) {
	for _, d := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10} {
		t.Run(d, func(t *testing.T) { test(t, d) })
	}
}

func TestMonitor(t *testing.T) { each(t, testMonitor) }

func testMonitor(t *testing.T, d string) {
	mem := held(newStore(t, clrtest.Words{}, d))
	s := newStore(t, mem, d)
	want := Monitor{
		Object: objectAt, Block: blockAt, Owner: 4242, Recursion: 2, Waiters: 3, Waiting: 1,
		holder: 5, byID: s.l.HolderID != contract.Absent,
	}
	if m, err := s.At(blockAt); err != nil || m != want {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := s.Of(objectAt); err != nil || m != want {
		t.Errorf("%+v, %v", m, err)
	}
	for _, id := range []uint64{0, 1<<64 - 1} {
		mem[blockAt+arch.Addr(s.l.OSID)] = id
		m, err := s.Of(objectAt)
		at, managed := m.Holder()
		if err != nil || !m.Orphan || m.Owner != 0 || m.Recursion != 2 || int(at)+managed != 5 {
			t.Errorf("orphan: %+v, %v", m, err)
		}
	}
	mem.Uint32(blockAt, 0)
	mem.Zero(blockAt+holderAt(s), 16)
	if s.l.HolderID != contract.Absent {
		mem[blockAt+holderAt(s)] = 0x55b8 << 32 // the bytes behind the four bytes mean nothing
	}
	mem.Uint32(blockAt+arch.Addr(s.l.Recursion), 0)
	if m, err := s.Of(objectAt); err != nil ||
		m != (Monitor{Object: objectAt, Block: blockAt, Waiting: 1, byID: want.byID}) {
		t.Errorf("free: %+v, %v", m, err)
	}
}

func TestThinLock(t *testing.T) {
	mem := clrtest.Words{}
	s := newStore(t, mem, clrtest.Net9)
	mem.Zero(objectAt-8, 16)
	for word, want := range map[uint32]Monitor{
		0:                   {Object: objectAt, Thin: true, ByManagedID: true},
		7:                   {Object: objectAt, Thin: true, ByManagedID: true, Owner: 7, Recursion: 1},
		7 | 2<<16:           {Object: objectAt, Thin: true, ByManagedID: true, Owner: 7, Recursion: 3},
		3<<26 | 0x123:       {Object: objectAt}, // a hash code
		0x8000_0000 | 7:     {Object: objectAt, Thin: true, ByManagedID: true, Owner: 7, Recursion: 1},
		0x7<<29 | 7 | 1<<16: {Object: objectAt, Thin: true, ByManagedID: true, Owner: 7, Recursion: 2},
	} {
		mem.Uint32(objectAt-4, word)
		if m, err := s.Of(objectAt); err != nil || m != want {
			t.Errorf("%#x: %+v, %v, want %+v", word, m, err, want)
		}
	}
}

// A lock that contradicts itself is an error.
func TestChanging(t *testing.T) {
	each(t, func(t *testing.T, d string) {
		l := newStore(t, clrtest.Words{}, d).l
		entry := entriesAt + 16*index
		for name, spoil := range map[string]func(clrtest.Words){
			"index":           func(m clrtest.Words) { m.Uint32(blockAt+arch.Addr(l.Index), index-1) },
			"no index":        func(m clrtest.Words) { m.Uint32(blockAt+arch.Addr(l.Index), 0) },
			"entry":           func(m clrtest.Words) { m[entry+arch.Addr(l.Block)] = uint64(blockAt + 88) },
			"free":            func(m clrtest.Words) { m[entry+arch.Addr(l.Object)] = 21 },
			"no object":       func(m clrtest.Words) { m[entry+arch.Addr(l.Object)] = 0 },
			"word":            func(m clrtest.Words) { m.Uint32(objectAt-4, wordHashOrIndex|index+1) },
			"thin":            func(m clrtest.Words) { m.Uint32(objectAt-4, index) },
			"owner, not held": func(m clrtest.Words) { m.Uint32(blockAt, 3<<waiterShift) },
			"no owner, free": func(m clrtest.Words) {
				m[blockAt+arch.Addr(l.OSID)] = 0
				m.Uint32(blockAt, 3<<waiterShift)
			},
			"no holder":    func(m clrtest.Words) { m[blockAt+holderAt(&Store{l: l})] = 0 },
			"no recursion": func(m clrtest.Words) { m.Uint32(blockAt+arch.Addr(l.Recursion), 0) },
			"large owner":  func(m clrtest.Words) { m[blockAt+arch.Addr(l.OSID)] = 1 << 40 },
			"circle":       func(m clrtest.Words) { m[linkAt] = uint64(linkAt) },
		} {
			mem := held(&Store{l: l})
			spoil(mem)
			if m, err := newStore(t, mem, d).At(blockAt); !errors.Is(err, ErrChanging) {
				t.Errorf("%s: %+v, %v", name, m, err)
			}
		}
	})
}

func TestBlocked(t *testing.T) { each(t, testBlocked) }

func testBlocked(t *testing.T, d string) {
	s := newStore(t, clrtest.Words{}, d)
	const base = arch.Addr(0x7f00_0000_0000)
	stack := func(item arch.Addr, words ...uint64) *target.Stack {
		data := make([]byte, 256)
		for i, w := range words {
			binary.LittleEndian.PutUint64(data[64+8*i:], w)
		}
		field := make([]byte, 8)
		binary.LittleEndian.PutUint64(field, uint64(item))
		r, _ := s.BlockingRange(threadAt)
		return &target.Stack{
			Region: target.Region{Base: base, Data: data}, Extra: []target.Region{{Base: r.Addr, Data: field}},
		}
	}
	const at, appDomain = base + 64, 0x5000
	never := uint64(0xffff_ffff) << 32
	for _, tt := range []struct {
		name  string
		stack *target.Stack
		want  Blocking
		ok    bool
	}{
		{"enters", stack(at, uint64(blockAt), appDomain, never, 0), Blocking{blockAt, false, -1}, true},
		{
			"waits, at most 1 s", stack(at, uint64(blockAt), appDomain, 1|1000<<32, 0), Blocking{blockAt, true, 1000},
			true,
		},
		{
			"one after another", stack(at, uint64(blockAt), appDomain, never, uint64(at+64)),
			Blocking{blockAt, false, -1}, true,
		},
		{"not blocked", stack(0), Blocking{}, false},
		{"beyond the stack", stack(base + 4096), Blocking{}, false},
		{"unaligned", stack(at + 4), Blocking{}, false},
		{"next lies below", stack(at, uint64(blockAt), appDomain, never, uint64(base)), Blocking{}, false},
		{"no lock", stack(at, 0, appDomain, never, 0), Blocking{}, false},
		{"neither", stack(at, uint64(blockAt), appDomain, never|2, 0), Blocking{}, false},
		{"timeout", stack(at, uint64(blockAt), appDomain, 0x8000_0000<<32, 0), Blocking{}, false},
		{"not copied", &target.Stack{Region: target.Region{Base: base, Data: make([]byte, 64)}}, Blocking{}, false},
	} {
		got, ok := s.Blocked(threadAt, tt.stack)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
	}
}

// An address near the end of the address space does not break a look; blocks that lie far apart do not make a look
// endless.
func TestHeldHostile(t *testing.T) {
	s := newStore(t, clrtest.Words{}, clrtest.Net10)
	mem := clrtest.Words{}
	mem[s.l.Table] = uint64(entriesAt)
	mem.Zero(entriesAt, 16*8)
	mem[entriesAt+16+arch.Addr(s.l.Block)] = 0xffff_ffff_ffff_ffb0
	mem[entriesAt+16+arch.Addr(s.l.Object)] = 8
	if got, all, err := newStore(t, mem, clrtest.Net10).Held(); err != nil || !all || len(got) != 0 {
		t.Errorf("%+v, %v, %v", got, all, err)
	}
	mem[entriesAt+16+arch.Addr(s.l.Block)] = uint64(blockAt) // a possible block that cannot be read
	if got, all, err := newStore(t, mem, clrtest.Net10).Held(); err != nil || all || len(got) != 0 {
		t.Errorf("%+v, %v, %v", got, all, err)
	}
	l := tableLook{s: newStore(t, zeros{}, clrtest.Net10), buf: make([]byte, window)}
	reads := 0
	for l.block(arch.Addr(reads+1)<<20) != nil {
		reads++
	}
	if reads != maxBytes/window {
		t.Errorf("%d reads", reads)
	}
}

// zeros is memory that is 0 everywhere.
type zeros struct{}

func (zeros) ReadMemory(p []byte, _ arch.Addr) error {
	clear(p)
	return nil
}

// A monitor beyond the bytes of a SyncBlock that are read is refused.
func TestCheckLayout(t *testing.T) {
	for at := uint32(blockLen - 7); at <= blockLen; at++ {
		l := newStore(t, clrtest.Words{}, clrtest.Net10).l
		l.Monitor = at
		if l.blockLayout.check() == nil {
			t.Errorf("a monitor at %d", at)
		}
	}
}

// FuzzMonitor: whatever the memory has, nothing panics, and a monitor with an owner, or an orphan, is held.
func FuzzMonitor(f *testing.F) {
	l := newStore(f, clrtest.Words{}, clrtest.Net9).l
	seed := make([]byte, blockLen)
	if err := held(&Store{l: l}).ReadMemory(seed, blockAt); err != nil {
		f.Fatal(err)
	}
	f.Add(seed, uint32(wordHashOrIndex|index), uint64(blockAt), uint64(objectAt))
	orphan := bytes.Repeat([]byte{'0'}, 24) // without a thread of the operating system
	clear(orphan[16:])
	f.Add(orphan, uint32(wordHashOrIndex|index), uint64(blockAt), uint64(objectAt))
	f.Fuzz(func(t *testing.T, block []byte, word uint32, entryBlock, entryObject uint64) {
		mem := held(&Store{l: l})
		for i := 0; i+8 <= len(block) && i < blockLen; i += 8 {
			mem[blockAt+arch.Addr(i)] = binary.LittleEndian.Uint64(block[i:])
		}
		mem.Uint32(objectAt-4, word)
		entry := entriesAt + 16*index
		mem[entry+arch.Addr(l.Block)], mem[entry+arch.Addr(l.Object)] = entryBlock, entryObject
		s := newStore(t, mem, clrtest.Net9)
		for _, read := range []func() (Monitor, error){
			func() (Monitor, error) { return s.At(blockAt) }, func() (Monitor, error) { return s.Of(objectAt) },
		} {
			if m, err := read(); err == nil && (m.Owner != 0 || m.Orphan) != (m.Recursion != 0) {
				t.Errorf("%+v", m)
			}
		}
	})
}

// The look goes up to the first entry that was never used. Free entries, monitors without a holder, and bad monitors
// are passed over.
func TestHeld(t *testing.T) { each(t, testHeld) }

func testHeld(t *testing.T, d string) {
	s := newStore(t, clrtest.Words{}, d)
	mem := clrtest.Words{}
	mem[s.l.Table] = uint64(entriesAt)
	mem.Zero(entriesAt, 16*chunk+32)
	one := held(s)
	for i, spoil := range []func(at arch.Addr){
		func(arch.Addr) {},
		func(at arch.Addr) { mem.Uint32(at+arch.Addr(s.l.Index), 99) },                   // of another entry
		func(at arch.Addr) { mem.Uint32(at, 3<<waiterShift); mem.Zero(at+4, 20) },        // free
		func(at arch.Addr) { mem[entriesAt+4*16+arch.Addr(s.l.Object)] = 0x1234<<1 | 1 }, // of no object
		func(arch.Addr) {},
	} {
		n := i + 1
		block := blockAt - arch.Addr(n)*0x100 // not in the order of the table
		for off := arch.Addr(0); off < 0x100; off += 8 {
			mem[block+off] = one[blockAt+off]
		}
		mem.Uint32(block+arch.Addr(s.l.Index), uint32(n))
		mem[entriesAt+16*arch.Addr(n)+arch.Addr(s.l.Block)] = uint64(block)
		mem[entriesAt+16*arch.Addr(n)+arch.Addr(s.l.Object)] = uint64(objectAt) + 0x100*uint64(n)
		spoil(block)
	}
	s = newStore(t, mem, d)
	got, all, err := s.Held()
	if err != nil || !all || len(got) != 2 || got[0].Object != objectAt+0x500 || got[1].Object != objectAt+0x100 {
		t.Fatalf("%+v, %v, %v", got, all, err)
	}
	if m := got[0]; m.Owner != 4242 || m.Recursion != 2 || m.Waiters != 3 {
		t.Errorf("%+v", m)
	}
	delete(mem, entriesAt+5*16) // the table ends before an entry that was never used
	if got, all, err := s.Held(); err != nil || all || len(got) != 1 {
		t.Errorf("%+v, %v, %v", got, all, err)
	}
}
