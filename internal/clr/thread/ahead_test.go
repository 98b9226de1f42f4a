package thread

import (
	"encoding/binary"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// aheadText is the description of the runtime of a native AOT program, as far as threads need it.
const aheadText = `{"version": 2, "types": {
	"Thread": {"OSId": 176, "State": 64, "LinkNext": 96, "CachedStackLimit": 160, "CachedStackBase": 168,
		"TransitionFrame": 72},
	"ThreadStore": {"FirstThreadLink": 0}, "MethodTable": {"Flags": 0, "BaseSize": 4},
	"System.Threading.Thread": {"!": 96, "_managedThreadId": 24, "_name": 32, "_threadState": 80}},
	"globals": {"ThreadStore": "0x1000", "ObjectToMethodTableUnmask": 7}, "contracts": {"Thread": "n1"}}`

// The made-up program: the addresses of MethodTables, and the sizes of objects.
const (
	aheadStore                                     = arch.Addr(0x1100)
	blockTable, threadTable, idTable, stringsTable = arch.Addr(0x20000), arch.Addr(0x20100), arch.Addr(0x20200),
		arch.Addr(0x20300)
	blockBase, idField, threadField = 104, 40, 56
)

// aheadProgram is the memory of a native AOT program.
type aheadProgram struct {
	clrtest.Words
	threads int
}

func newAheadProgram() *aheadProgram {
	p := &aheadProgram{Words: clrtest.Words{0x1000: uint64(aheadStore), aheadStore: 0}}
	p.table(blockTable, 0, blockBase)
	p.table(threadTable, 0, 96+beside)
	p.table(idTable, 0, idBase)
	p.table(stringsTable, hasElements|stringUnit, stringBase)
	return p
}

func (p *aheadProgram) table(at arch.Addr, flags, base uint32) {
	p.Words[at] = uint64(base)<<32 | uint64(flags)
}

// Places of the parts of a thread.
func aheadThread(i int) arch.Addr { return arch.Addr(0x100000 + 0x1000*i) }

const rootOf, blockOf, objectOf, idOf, nameOf = 0x400, 0x500, 0x600, 0x700, 0x800

// add adds a thread in front of the list. Without an id the thread has no block; without a state the thread has no
// managed Thread object.
func (p *aheadProgram) add(osID int, flags uint32, transition uint64, id, state uint32, name string) arch.Addr {
	p.threads++
	at := aheadThread(p.threads)
	p.Zero(at, 200)
	p.Words[at+176], p.Words[at+64], p.Words[at+72] = uint64(osID), uint64(flags), transition
	p.Words[at+96] = p.Words[aheadStore]
	p.Words[aheadStore] = uint64(at)
	if id == 0 {
		return at
	}
	block, obj := at+blockOf, at+objectOf
	p.Words[at+160-16] = uint64(at + rootOf) // thread.h, RuntimeThreadLocals
	p.Words[at+rootOf], p.Words[at+rootOf+rootNext] = uint64(block), 0
	p.Zero(block, blockBase)
	p.Words[block] = uint64(blockTable)
	p.Words[block+idField] = uint64(at + idOf)
	p.Words[at+idOf], p.Words[at+idOf+idInObject] = uint64(idTable), uint64(id)
	if state == 0 {
		return at
	}
	p.Words[block+threadField] = uint64(obj)
	p.Zero(obj, 96)
	p.Words[obj], p.Words[obj+24], p.Words[obj+80] = uint64(threadTable), uint64(at+idOf), uint64(state)
	if name != "" {
		p.Words[obj+32] = uint64(at + nameOf)
		p.text(at+nameOf, name)
	}
	return at
}

// text lays out a string.
func (p *aheadProgram) text(at arch.Addr, s string) {
	b := make([]byte, 64)
	binary.LittleEndian.PutUint64(b, uint64(stringsTable))
	binary.LittleEndian.PutUint32(b[stringLengthAhead:], uint32(len(s)))
	for i, c := range s {
		binary.LittleEndian.PutUint16(b[stringCharsAhead+2*i:], uint16(c))
	}
	for ; len(b) > 0; b, at = b[8:], at+8 {
		p.Words[at] = binary.LittleEndian.Uint64(b)
	}
}

func aheadDescriptor(t testing.TB) *contract.Descriptor {
	t.Helper()
	d, err := contract.FromJSON([]byte(aheadText), nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestAhead lists the threads of a native AOT program. TestNativeAOTNewest has those of real programs.
func TestAhead(t *testing.T) {
	p := newAheadProgram()
	p.add(107, aheadAttached|aheadDetached, 1, 7, 1, "ended")
	p.add(106, 0, 1, 0, 0, "")
	finalizer := p.add(105, aheadAttached|aheadFinalizer, 1, 0, 0, "")
	p.add(104, aheadAttached, 0, 4, 0, "")
	p.add(103, aheadAttached, 1, 3, managedThreadPool|managedBackground, "")
	named := p.add(102, aheadAttached, 1, 2, managedBackground, "name")
	p.add(101, aheadAttached, 1, 1, 1<<3, "")
	s := newStore(t, p, aheadDescriptor(t))
	list, err := s.List()
	if err != nil || s.Unsure() || len(list) != 7 {
		t.Fatal(list, s.Unsure(), err)
	}
	const own = StateStarted // of threads with a managed Thread object
	for i, want := range []Thread{
		{OSID: 101, ManagedID: 1, State: own},
		{OSID: 102, ManagedID: 2, State: own | StateBackground},
		{OSID: 103, ManagedID: 3, State: own | StateBackground | StateThreadPool},
		{OSID: 104, ManagedID: 4, State: StateBackground, Cooperative: true},
		{OSID: 105, State: StateBackground},
		{OSID: 106, State: StateBackground | StateUnstarted},
		{OSID: 107, State: StateBackground | StateDetached},
	} {
		got := list[i]
		head := make([]byte, s.HeadLen())
		if err := p.ReadMemory(head, got.Address); err != nil || s.Parse(head, got.Address) != got {
			t.Errorf("the head of thread %d is %+v, %v", want.OSID, s.Parse(head, got.Address), err)
		}
		if alive := want.State&(StateDetached|StateUnstarted) == 0; s.Same(p, &got) != alive || got.Alive() != alive {
			t.Errorf("thread %d lives: %v, %v", want.OSID, s.Same(p, &got), got.Alive())
		}
		got.Address = 0
		if got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	if at, err := s.Finalizer(); at != finalizer || err != nil {
		t.Errorf("the finalizer is %v, %v", at, err)
	}
	if name, known := s.Name(&list[1]); name != "name" || !known || s.StringType() != stringsTable {
		t.Errorf("thread 102 is %q, %v; strings have the MethodTable %v", name, known, s.StringType())
	}
	if name, known := s.Name(&list[4]); name != "" || !known {
		t.Errorf("the finalizer is %q, %v", name, known)
	}
	if obj, err := s.ObjectIn(p, &list[1]); obj != named+objectOf || err != nil {
		t.Errorf("the managed Thread object of thread 102 is at %v, %v", obj, err)
	}
}

// TestAheadExceptions finds the exceptions in flight on a thread: each ExInfo has the exception object, and leads to
// the ExInfo before. A list in a circle has an end, and a runtime that does not describe ExInfo has no exceptions.
func TestAheadExceptions(t *testing.T) {
	p := newAheadProgram()
	at := p.add(101, aheadAttached, 1, 1, 1, "")
	const newest, older, thrown, before = arch.Addr(0x9000), arch.Addr(0x9100), 0x9200, 0x9300
	p.Words[at+120] = uint64(newest)
	p.Words[newest], p.Words[newest+16] = uint64(older), thrown
	p.Words[older], p.Words[older+16] = 0, before
	d := aheadDescriptor(t)
	list, err := newStore(t, p, d).List()
	if err != nil || list[0].Exception != 0 {
		t.Fatal(list, err)
	}
	describeExceptions(d)
	s := newStore(t, p, d)
	if list, err = s.List(); err != nil || list[0].Exception != newest || !s.StillInFlight(&list[0]) {
		t.Fatal(list, err)
	}
	if got := s.InFlight(&list[0]); !slices.Equal(got, []arch.Addr{thrown, before}) {
		t.Errorf("in flight are %v", got)
	}
	if at := s.LastThrown(&list[0]); at != 0 {
		t.Errorf("the last exception is at %v", at)
	}
	if e, ok := s.Exception(&list[0], &target.Stack{}); ok {
		t.Errorf("the state is %+v", e)
	}
	p.Words[older] = uint64(newest)
	if got := s.InFlight(&list[0]); len(got) != 2 {
		t.Errorf("in flight in a circle are %v", got)
	}
}

func describeExceptions(d *contract.Descriptor) {
	d.Types["Thread"].Fields["ExceptionTracker"] = contract.Field{Offset: 120}
	d.Types["ExInfo"] = contract.Type{Fields: map[string]contract.Field{
		"PreviousNestedInfo": {Offset: 0}, "ThrownObject": {Offset: 16},
	}}
}

// TestFramesOf: the number 1 ends the trace of an earlier throw.
func TestFramesOf(t *testing.T) {
	words := func(list ...uint64) (b []byte) {
		for _, w := range list {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	got := FramesOf(append(words(1, 0x10, 0x20, 1, 1, 0x30), 0x40))
	want := []TraceFrame{{IP: 0x10}, {IP: 0x20, EndsTrace: true}, {IP: 0x30}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// TestBlocks finds the static fields of threads: the array of fields of other code, and a block for each root. A list
// in a circle has an end.
func TestBlocks(t *testing.T) {
	p := newAheadProgram()
	none := p.add(101, aheadAttached, 1, 0, 0, "")
	both := p.add(102, aheadAttached, 1, 2, 1, "")
	const array, second = arch.Addr(0x9000), arch.Addr(0x9100)
	p.Words[both+160-24] = uint64(array)
	p.Words[both+rootOf+rootNext], p.Words[second], p.Words[second+rootNext] = uint64(second), 0x9200, 0
	s := newStore(t, p, aheadDescriptor(t))
	if got := s.Blocks(none); len(got) > 0 {
		t.Errorf("a thread without fields has %v", got)
	}
	if got, want := s.Blocks(both), []arch.Addr{array, both + blockOf, 0x9200}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	p.Words[second+rootNext] = uint64(second)
	if got := s.Blocks(both); len(got) != 1+maxRoots {
		t.Errorf("the circle has %d blocks", len(got))
	}
}

// TestAheadMoving: a Thread object that is being moved is not believed, and the known ids stay.
func TestAheadMoving(t *testing.T) {
	p := newAheadProgram()
	at := p.add(101, aheadAttached, 1, 1, 1, "name")
	s := newStore(t, p, aheadDescriptor(t))
	first, err := s.List()
	if err != nil || first[0].ManagedID != 1 {
		t.Fatal(first, err)
	}
	p.Words[at+objectOf+24] = uint64(at + nameOf) // another object by now
	list, err := s.List()
	if err != nil || !s.Unsure() || list[0].ManagedID != 1 {
		t.Errorf("%+v, unsure: %v, %v", list, s.Unsure(), err)
	}
	if obj, err := s.ObjectIn(p, &list[0]); obj != 0 || err == nil {
		t.Errorf("the object is at %v, %v", obj, err)
	}
	if name, known := s.Name(&list[0]); name != "" || known {
		t.Errorf("the name is %q, %v", name, known)
	}
	p.Words[at+176] = 102 // another thread by now
	if list, err = s.List(); err != nil || list[0].ManagedID != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestAheadOtherSize: Thread objects of another size have another layout, and their flags are not read.
func TestAheadOtherSize(t *testing.T) {
	for _, size := range []uint32{88, 104} {
		p := newAheadProgram()
		p.table(threadTable, 0, size+beside)
		p.add(101, aheadAttached, 1, 1, managedBackground, "")
		list, err := newStore(t, p, aheadDescriptor(t)).List()
		if err != nil || list[0].ManagedID != 1 || list[0].State != StateStarted {
			t.Errorf("with %d bytes: %+v, %v", size, list, err)
		}
	}
}

// TestAheadTwice: two threads cannot have one id.
func TestAheadTwice(t *testing.T) {
	p := newAheadProgram()
	p.add(101, aheadAttached, 1, 1, 1, "")
	p.add(102, aheadAttached, 1, 2, 1, "")
	p.add(103, aheadAttached, 1, 1, 1, "")
	list, err := newStore(t, p, aheadDescriptor(t)).List()
	if err != nil || list[0].ManagedID != 0 || list[1].ManagedID != 2 || list[2].ManagedID != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestAheadLayout: a field beyond the copied part of a Thread is an error.
func TestAheadLayout(t *testing.T) {
	d := aheadDescriptor(t)
	d.Types["Thread"].Fields["OSId"] = contract.Field{Offset: maxHead}
	if s, err := NewStore(clrtest.Words{}, d); err == nil {
		t.Errorf("%+v", s)
	}
}

// FuzzAhead lists the threads of memory that leads anywhere.
func FuzzAhead(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x00\x00\x00\x00\x00\x10\x00\x01\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x01\x00\x02\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, words []byte) {
		d := aheadDescriptor(t)
		describeExceptions(d)
		s := newStore(t, hostile(words), d)
		list, _ := s.List()
		for i := range list[:min(len(list), 8)] {
			_, _ = s.Name(&list[i])
			_ = s.InFlight(&list[i])
			_, _ = s.ObjectIn(hostile(words), &list[i])
			if n := len(s.Blocks(list[i].Address)); n > 1+maxRoots {
				t.Errorf("a thread has %d blocks", n)
			}
		}
		_, _ = s.Finalizer()
	})
}
