package thread

import (
	"encoding/binary"
	"maps"
	"testing"
	"unicode/utf16"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

const (
	threadAt  = arch.Addr(0x10000)
	exInfoAt  = base + 0x800
	handleAt  = arch.Addr(0x20000)
	objectAt  = arch.Addr(0x30000)
	nameAt    = arch.Addr(0x40000)
	olderAt   = arch.Addr(0x50000)
	stringsMT = uint64(0x60000)
)

func newStore(t *testing.T, mem target.Memory, d *contract.Descriptor) *Store {
	t.Helper()
	s, err := NewStore(mem, d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestException(t *testing.T) { clrtest.OnEach(t, testException) }

func testException(t *testing.T, d *contract.Descriptor) {
	s := newStore(t, clrtest.Words{}, d)
	low, high := uint64(exInfoAt)+0x100, uint64(exInfoAt)+0x200
	for _, tt := range []struct {
		name            string
		entered, flags  uint32
		pass            byte
		low, high       uint64
		want            Exception
		notToBeBelieved bool
	}{
		{"first pass", 0, 0x11, 1, 0, 0, Exception{}, false},
		{"a filter runs", 1, 0x11, 1, 0, 0, Exception{InHandler: true}, false},
		{"second pass", 0, 0x15, 2, low, high,
			Exception{Unwinding: true, Low: arch.Addr(low), High: arch.Addr(high)}, false},
		{"a catch block runs", 1, 0x15, 2, low, high,
			Exception{Unwinding: true, InHandler: true, Low: arch.Addr(low), High: arch.Addr(high)}, false},
		{"nothing unwound yet", 0, 0x15, 2, 0, 0, Exception{Unwinding: true}, false},
		{"a range that is upside down", 0, 0x15, 2, high, low, Exception{Unwinding: true}, false},
		{"a range beyond the stack", 0, 0x15, 2, low, 1 << 62, Exception{Unwinding: true}, false},
		{"pass and flag disagree", 0, 0x15, 1, low, high, Exception{}, true},
		{"no such pass", 0, 0x15, 3, low, high, Exception{}, true},
		{"neither true nor false", 2, 0x15, 2, low, high, Exception{}, true},
	} {
		st := newStack()
		put := func(off uint32, v uint64) { st.set(exInfoAt+arch.Addr(off), v) }
		put(s.ex.Flags-exEntered, uint64(tt.flags)<<32|uint64(tt.entered))
		put(s.ex.Low, tt.low)
		put(s.ex.High, tt.high)
		put(s.ex.Pass, uint64(tt.pass))
		got, ok := s.Exception(&Thread{Exception: exInfoAt}, &st.Stack)
		if got != tt.want || ok == tt.notToBeBelieved {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
	}
	if e, ok := s.Exception(&Thread{}, &newStack().Stack); ok {
		t.Errorf("no exception: %+v", e)
	}
	if e, ok := s.Exception(&Thread{Exception: base - 64}, &newStack().Stack); ok {
		t.Errorf("an ExInfo beside the stack: %+v", e)
	}
}

// If the layout of an ExInfo is not known, no state is read from an ExInfo.
func TestExceptionUnknown(t *testing.T) {
	d := *clrtest.Descriptor(t, clrtest.Net10)
	pass, ok := d.Offset("ExceptionInfo", "PassNumber")
	if !ok {
		t.Fatal("the number of the pass is not known")
	}
	d.Types = maps.Clone(d.Types)
	d.Types["ExceptionInfo"] = contract.Type{Fields: map[string]contract.Field{
		"PreviousNestedInfo": {Offset: 8}, "ThrownObject": {Offset: 0},
	}}
	st := newStack()
	st.set(exInfoAt+arch.Addr(pass), 1)
	if e, ok := newStore(t, clrtest.Words{}, &d).Exception(&Thread{Exception: exInfoAt}, &st.Stack); ok {
		t.Errorf("%+v", e)
	}
}

// The exception object in flight is behind a handle in .NET 10, and in the ExInfo itself in .NET 11.
func TestLastException(t *testing.T) { clrtest.OnEach(t, testLastException) }

func testLastException(t *testing.T, d *contract.Descriptor) {
	mem := clrtest.Words{handleAt: uint64(objectAt), handleAt + 8: uint64(olderAt), objectAt: stringsMT}
	s := newStore(t, mem, d)
	th := Thread{Address: threadAt, Exception: exInfoAt}
	mem[exInfoAt+arch.Addr(s.l.ExObject)] = uint64(handleAt)
	mem[threadAt+arch.Addr(s.thrown.LastThrown)] = uint64(handleAt + 8)
	offsets := s.ExceptionOffsets()
	if s.direct {
		mem[exInfoAt+arch.Addr(s.l.ExObject)] = uint64(objectAt)
	}
	if want := (ExceptionOffsets{s.l.Exception, s.l.ExObject, s.l.ExPrevious, 48, s.direct}); offsets != want {
		t.Errorf("the exception is at %+v, not at %+v", offsets, want)
	}
	if obj := s.LastException(&th); obj != objectAt {
		t.Errorf("in flight: %v", obj)
	}
	mem[exInfoAt+arch.Addr(s.l.ExObject)] = 0
	if obj := s.LastException(&th); obj != olderAt {
		t.Errorf("nothing in flight: %v", obj)
	}
	th.Exception = 0
	if obj := s.LastException(&th); obj != olderAt {
		t.Errorf("no ExInfo: %v", obj)
	}
}

func TestName(t *testing.T) { clrtest.OnEach(t, testName) }

func testName(t *testing.T, d *contract.Descriptor) {
	const text = "worker ü"
	for extra := arch.Addr(0); extra <= managedExtra; extra += 8 {
		mem := clrtest.Words{}
		s := newStore(t, mem, d)
		mem[s.l.StringType] = stringsMT
		mem[handleAt] = uint64(objectAt)
		mem.Zero(objectAt, 96)
		mem[objectAt+managedName] = uint64(nameAt)
		mem[objectAt+managedInternal+extra] = uint64(threadAt)
		mem.Uint32(objectAt+managedInternal+extra+managedID, 7)
		units := utf16.Encode([]rune(text))
		mem[nameAt] = stringsMT | 1 // marked by the garbage collector
		mem.Uint32(nameAt+arch.Addr(s.l.StringLength), uint32(len(units)))
		b := make([]byte, 4*((len(units)+1)/2))
		for i, u := range units {
			binary.LittleEndian.PutUint16(b[2*i:], u)
		}
		for i := 0; i < len(b); i += 4 {
			mem.Uint32(nameAt+arch.Addr(s.l.StringChars)+arch.Addr(i), binary.LittleEndian.Uint32(b[i:]))
		}
		th := Thread{Address: threadAt, ManagedID: 7, Exposed: handleAt}
		if name, ok := s.Name(&th); !ok || name != text {
			t.Errorf("+%d: %q, %v", extra, name, ok)
		}
		th.ManagedID = 8
		if name, ok := s.Name(&th); ok {
			t.Errorf("+%d: the name of another thread: %q", extra, name)
		}
		th.ManagedID, mem[objectAt+managedInternal+extra] = 7, uint64(threadAt)+8
		if name, ok := s.Name(&th); ok {
			t.Errorf("+%d: the name of an object that belongs to another thread: %q", extra, name)
		}
	}
}

// linkedThreads lays out a list of threads. Each link leads to the offset into in its Thread.
func linkedThreads(s *Store, mem clrtest.Words, threads int, into arch.Addr) (at []arch.Addr) {
	const storeAt, first = arch.Addr(0x200000), arch.Addr(0x100000)
	mem[s.l.Store&^7] = uint64(storeAt)
	from := storeAt + arch.Addr(s.l.First)
	for i := range threads {
		at = append(at, first+arch.Addr(i)*2*maxHead)
		mem.Zero(at[i], maxHead)
		mem[from] = uint64(at[i] + into)
		from = at[i] + arch.Addr(s.l.Link)
	}
	mem[from] = 0
	return at
}

// The contract Thread c1 has two kinds of links: to a Thread, and to the link in a Thread. The table of managed ids
// tells the kinds apart. Without the table, links lead to a Thread, as in .NET 11.0.
func TestListLinks(t *testing.T) {
	const threads, dispenserAt, tableAt = 3, 0x300000, 0x310000
	for _, inside := range []bool{false, true} {
		mem := clrtest.Words{}
		s := newStore(t, mem, clrtest.Descriptor(t, clrtest.Net11))
		into := arch.Addr(0)
		if inside {
			into = arch.Addr(s.l.Link)
		}
		at := linkedThreads(s, mem, threads, into)
		list, err := s.List()
		if known := err == nil && len(list) == threads && list[2].Address == at[2]; known == inside {
			t.Errorf("%d bytes into a Thread, and nothing says that: %+v, %v", into, list, err)
		}
		mem[s.l.Dispenser&^7] = dispenserAt
		mem[dispenserAt+arch.Addr(s.l.ByID)] = tableAt
		for i, a := range at {
			mem.Uint32(a+arch.Addr(s.l.ID), uint32(i+1))
			mem[tableAt+8*arch.Addr(i+1)] = uint64(a)
		}
		list, err = s.List()
		if err != nil || len(list) != threads || list[0].Address != at[0] || list[2].Address != at[2] {
			t.Errorf("%d bytes into a Thread: %+v, %v", into, list, err)
		}
	}
}

// A Thread that is freed during List can lead back into the list. List notices the circle soon, wherever the Thread
// leads.
func TestListInACircle(t *testing.T) { clrtest.OnEach(t, testListInACircle) }

func testListInACircle(t *testing.T, d *contract.Descriptor) {
	const threads = 9
	mem := clrtest.Words{}
	s := newStore(t, mem, d)
	into := arch.Addr(s.l.Link)
	if s.linked {
		into = 0
	}
	at := linkedThreads(s, mem, threads, into)
	if list, err := s.List(); err != nil || len(list) != threads {
		t.Fatalf("%d threads, %v", len(list), err)
	}
	for to := range threads {
		mem[at[threads-1]+arch.Addr(s.l.Link)] = uint64(at[to] + into)
		if list, err := s.List(); err == nil || len(list) > 3*threads {
			t.Errorf("back to thread %d: %d threads, %v", to, len(list), err)
		}
	}
}

// A capture copies only the known part of a Thread object, because readable memory can end behind the object. The
// copy has the two words of a hijack, which no descriptor names.
func TestHeadLen(t *testing.T) {
	for name, want := range map[string]int{clrtest.Net8: maxHead, clrtest.Net10: 680, clrtest.Net11: 616} {
		s, err := NewStore(clrtest.Words{}, clrtest.Descriptor(t, name))
		if err != nil {
			t.Fatal(err)
		}
		const hijack = 168 // .NET 10 and 11
		if n := s.HeadLen(); n != want || n < s.Needed() || n < hijack {
			t.Errorf("%s: %d bytes, not %d", name, n, want)
		}
	}
}
