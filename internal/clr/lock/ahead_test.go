package lock

import (
	"errors"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// aheadText is the description of a native AOT program, as far as locks need it.
const aheadText = `{"version": 2, "types": {
	"System.Threading.SyncTable+Entry": {"!": 32, "Lock": 0, "Owner": 24},
	"Array": {"!": 16, "m_NumComponents": 8}},
	"globals": {"ObjectToMethodTableUnmask": 7}, "contracts": {"SyncBlock": "n1"}}`

// Types of the made-up program, by their MethodTables.
const (
	objectType = arch.Addr(0x20000 + 0x100*iota)
	lockType
	conditionType
	entryType
	tableType
	staticsType
)

// aheadTypes are the types of the made-up program.
type aheadTypes struct{}

var aheadNames = map[arch.Addr]string{
	objectType: "object", lockType: lockClass, conditionType: conditionClass, entryType: entryClass,
	tableType: entryClass + "[]", staticsType: "statics",
}

func (aheadTypes) Check(mt arch.Addr) error {
	if aheadNames[mt] == "" {
		return types.ErrCorrupt
	}
	return nil
}

func (aheadTypes) Read(mt arch.Addr) (types.Type, error) {
	if mt == tableType {
		return types.Type{Kind: types.SZArray, Elem: entryType}, nil
	}
	return types.Type{}, nil
}

func (aheadTypes) Class(mt arch.Addr) (name.Class, error) {
	return name.Class{Display: aheadNames[mt], Assembly: coreLib}, nil
}

func (aheadTypes) RuntimeName(mt arch.Addr) (string, error)   { return aheadNames[mt], nil }
func (aheadTypes) FullName(mt arch.Addr) (string, error)      { return aheadNames[mt], nil }
func (aheadTypes) Base(arch.Addr) (arch.Addr, error)          { return 0, nil }
func (aheadTypes) IsValueType(mt arch.Addr) (bool, error)     { return mt == entryType, nil }
func (aheadTypes) ComponentSize(arch.Addr) (uint32, error)    { return 32, nil }
func (aheadTypes) Named(arch.Addr, string) (arch.Addr, error) { return 0, types.ErrFields }

func (aheadTypes) BaseSize(mt arch.Addr) (uint32, error) {
	if mt == staticsType {
		return 8 + 32, nil
	}
	return 8 + 24, nil
}

func (aheadTypes) Direct(arch.Addr, string, string) (uint32, error) { return 0, types.ErrFields }

func (aheadTypes) EachField(mt arch.Addr, visit func(string, uint32, bool)) error {
	if mt == lockType {
		visit("_owningThreadId", 16, false)
		visit("_state", 20, false)
		visit("_recursionCount", 24, false)
	}
	return nil
}

// Places in the made-up program.
const (
	staticsAt    = arch.Addr(0x30000)
	tableField   = staticsAt + 16
	aheadTableAt = arch.Addr(0x31000)
	localsAt     = arch.Addr(0x50000)
	stackLow     = arch.Addr(0x60000)
	stackHigh    = arch.Addr(0x61000)
)

func aheadObject(i int) arch.Addr { return arch.Addr(0x40000 + 0x100*i) }
func aheadLock(i int) arch.Addr   { return aheadObject(i) + 0x40 }
func aheadHandle(i int) arch.Addr { return aheadObject(i) + 0x80 }

// newAheadStore returns a program whose sync table has entries for some objects. Each object's Lock has a state.
func newAheadStore(t testing.TB, states ...uint32) (*Store, clrtest.Words) {
	t.Helper()
	mem := clrtest.Words{
		staticsAt: uint64(staticsType), staticsAt + 8: 0, tableField: uint64(aheadTableAt), staticsAt + 24: 0,
		aheadTableAt: uint64(tableType), aheadTableAt + 8: uint64(len(states) + 2),
	}
	mem.Zero(aheadTableAt+16, 32*(len(states)+2))
	for i, state := range states {
		n := i + 1
		entry := aheadTableAt + 16 + arch.Addr(32*n)
		mem[entry], mem[entry+24] = uint64(aheadLock(n)), uint64(aheadHandle(n))
		mem[aheadHandle(n)] = uint64(aheadObject(n))
		mem[aheadObject(n)], mem[aheadObject(n)-8] = uint64(objectType), uint64(wordHashOrIndex|n)<<32
		owner := uint32(0)
		if state&lockLocked != 0 {
			owner = uint32(n)
		}
		mem[aheadLock(n)], mem[aheadLock(n)+16] = uint64(lockType), uint64(state)<<32|uint64(owner)
		mem[aheadLock(n)+24] = 0
	}
	return aheadStore(t, mem), mem
}

func aheadStore(t testing.TB, mem target.Memory) *Store {
	t.Helper()
	d, err := contract.FromJSON([]byte(aheadText), nil)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := object.NewOf(mem, d, aheadTypes{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewAhead(mem, mem, d, objects, func() ([]arch.Addr, error) {
		return []arch.Addr{objectAt, staticsAt}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAheadLocks reads monitors of a native AOT program. TestNativeAOTNewest has those of a real program.
func TestAheadLocks(t *testing.T) {
	s, mem := newAheadStore(t, lockLocked|2<<lockWaiterShift, 0, lockLocked)
	want := Monitor{
		Object: aheadObject(1), Block: aheadHandle(1), Lock: aheadLock(1), Owner: 1, Recursion: 1, Waiters: 2,
		ByManagedID: true,
	}
	if m, err := s.Of(aheadObject(1)); m != want || err != nil {
		t.Errorf("the first monitor is %+v, %v", m, err)
	}
	if m, ok, err := s.OfLock(aheadLock(3)); !ok || m.Object != aheadObject(3) || m.Owner != 3 || err != nil {
		t.Errorf("the third monitor is %+v, %v, %v", m, ok, err)
	}
	if m, ok, err := s.OfLock(aheadObject(1)); ok || err != nil {
		t.Errorf("an object that is no Lock has %+v, %v", m, err)
	}
	held, all, err := s.Held()
	if !all || err != nil || len(held) != 2 || held[0] != want || held[1].Object != aheadObject(3) {
		t.Errorf("held are %+v, %v, %v", held, all, err)
	}
	mem[aheadObject(4)], mem[aheadObject(4)-8] = uint64(objectType), (5|1<<thinRecursionAt)<<32
	if m, err := s.Of(aheadObject(4)); m.Owner != 5 || m.Recursion != 2 || !m.Thin || err != nil {
		t.Errorf("the thin lock is %+v, %v", m, err)
	}
	mem[aheadObject(2)-8] = uint64(wordHashOrIndex|1) << 32
	if m, err := s.Of(aheadObject(2)); !errors.Is(err, ErrChanging) {
		t.Errorf("an object with the entry of another has %+v, %v", m, err)
	}
	mem[aheadObject(2)-8] = uint64(wordHashOrIndex|77) << 32
	if m, err := s.Of(aheadObject(2)); !errors.Is(err, ErrChanging) {
		t.Errorf("an object with an entry beyond the table has %+v, %v", m, err)
	}
	s.Look()
	if m, ok := s.Entered(aheadLock(1)); !ok || m.Object != aheadObject(1) || m.Block != aheadHandle(1) {
		t.Errorf("the monitor of the first Lock is %+v, %v", m, ok)
	}
}

// TestAheadNoTable: a program without a sync table has no locks that can be read, and no wrong ones.
func TestAheadNoTable(t *testing.T) {
	s, mem := newAheadStore(t, lockLocked)
	mem[aheadTableAt] = uint64(objectType)
	if m, err := s.Of(aheadObject(1)); err == nil {
		t.Errorf("it is %+v", m)
	}
	if held, all, err := s.Held(); len(held) != 0 || all || err == nil {
		t.Errorf("held are %+v, %v, %v", held, all, err)
	}
	mem[aheadTableAt] = uint64(tableType)
	var err error
	for range longestRest + 1 {
		if _, err = s.Of(aheadObject(1)); err == nil {
			return
		}
	}
	t.Errorf("a table of later is not found: %v", err)
}

// TestAheadInfo finds the record of a wait by the static fields of a thread.
func TestAheadInfo(t *testing.T) {
	const field, at, slot = 40, stackLow + 0x100, stackLow + 0x200
	for what, tt := range map[string]struct {
		kind    uint64
		obj     arch.Addr
		slot    arch.Addr
		next    arch.Addr
		isFound bool
	}{
		"a Lock":                 {ofLock, aheadLock(1), slot, 0, true},
		"a Condition":            {ofCondition, aheadObject(2), slot, stackLow + 0x300, true},
		"no kind":                {7, aheadLock(1), slot, 0, false},
		"a Lock as a Condition":  {ofCondition, aheadLock(1), slot, 0, false},
		"a slot elsewhere":       {ofLock, aheadLock(1), localsAt, 0, false},
		"a list that leads back": {ofLock, aheadLock(1), slot, at, false},
	} {
		s, mem := newAheadStore(t, lockLocked)
		mem[aheadObject(2)] = uint64(conditionType)
		mem.Zero(localsAt, 64)
		mem[localsAt+16] = uint64(stackLow + 0x80) // a pointer to other data
		mem.Zero(stackLow+0x80, 24)
		mem[localsAt+field] = uint64(at)
		mem[at], mem[at+8], mem[at+16] = uint64(tt.slot), tt.kind, uint64(tt.next)
		mem[tt.slot] = uint64(tt.obj)
		r, ok := s.InfoIn(localsAt, 64, stackLow, stackHigh)
		if ok != tt.isFound || ok && r != (target.Range{Addr: localsAt + field, Len: 8}) {
			t.Errorf("%s: %+v, %v", what, r, ok)
		}
		other, ok := s.InfoIn(localsAt+0x1000, 64, 0, 0)
		if ok != tt.isFound || ok && other.Addr != localsAt+0x1000+field {
			t.Errorf("%s: of another thread %+v, %v", what, other, ok)
		}
	}
}

// aheadPattern is memory with the same words again and again.
type aheadPattern []byte

func (h aheadPattern) ReadMemory(p []byte, at arch.Addr) error {
	if len(h) == 0 || at < 0x1000 || at > 1<<47 {
		return &target.ReadError{Addr: at, Len: len(p)}
	}
	for i := range p {
		p[i] = h[(int(at&0xffff)+i)%len(h)]
	}
	return nil
}

// FuzzAheadLocks reads locks out of hostile memory.
func FuzzAheadLocks(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0})
	f.Add(slices.Repeat([]byte{0, 5, 2, 0, 0, 0, 0, 0}, 4))
	f.Fuzz(func(t *testing.T, memory []byte) {
		s := aheadStore(t, aheadPattern(memory))
		_, _ = s.Of(aheadObject(1))
		if held, _, _ := s.Held(); len(held) > maxHeld {
			t.Errorf("%d monitors are held", len(held))
		}
		_, _, _ = s.OfLock(aheadLock(1))
		_, _ = s.InfoIn(localsAt, 64, stackLow, stackHigh)
	})
}
