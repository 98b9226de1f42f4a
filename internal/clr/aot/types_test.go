package aot

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// typesText is the description of the runtime of a native AOT program, as far as types need it.
const typesText = `{"version": 2, "types": {
	"MethodTable": {"Flags": 0, "BaseSize": 4, "RelatedType": 8, "NumVtableSlots": 16, "NumInterfaces": 18,
		"VTable": 24},
	"RuntimeInstance": {"TypeManagerList": 40}, "TypeManagerEntry": {"Next": 0, "TypeManager": 8},
	"Space.Known": {"!": 24, "_reference": [8, "object"], "_number": 16},
	"Space.Holder` + "`1" + `": {"_value": [8, "any"]},
	"assembly!Space.Other": {"!": 16, "_number": 8}},
	"globals": {"RuntimeInstance": "0x1000"}, "contracts": {}}`

// Places in the made-up program.
const (
	instanceAt, managerEntryAt, managerAt, indirectionAt arch.Addr = 0x1100, 0x1200, 0x1300, 0x1400

	tablesAt = arch.Addr(0x20000)
	tableGap = 0x100
)

// typeProgram is the memory of a native AOT program with types.
type typeProgram struct {
	builder
	memory     map[arch.Addr][]byte // of tableGap bytes
	owners     map[arch.Addr]uint32
	references map[arch.Addr][]uint32
	core       uint32 // the namespace Space of System.Private.CoreLib
	tables     int
}

func (p *typeProgram) ReadMemory(b []byte, at arch.Addr) error {
	for start, have := range p.memory {
		if at >= start && at-start <= arch.Addr(len(have)) && len(b) <= len(have)-int(at-start) {
			copy(b, have[at-start:])
			return nil
		}
	}
	return &target.ReadError{Addr: at, Len: len(b)}
}

func (p *typeProgram) word(at arch.Addr, v uint64) {
	start := at &^ (tableGap - 1)
	if p.memory[start] == nil {
		p.memory[start] = make([]byte, tableGap)
	}
	binary.LittleEndian.PutUint64(p.memory[start][at-start:], v)
}

func newTypeProgram() *typeProgram {
	p := &typeProgram{
		builder: *newBuilder(), memory: map[arch.Addr][]byte{}, owners: map[arch.Addr]uint32{},
		references: map[arch.Addr][]uint32{},
	}
	p.word(0x1000, uint64(instanceAt))
	p.word(instanceAt+40, uint64(managerEntryAt))
	p.word(managerEntryAt, 0)
	p.word(managerEntryAt+8, uint64(managerAt))
	p.word(indirectionAt, uint64(managerAt))
	p.core = p.space(coreLib, "Space")
	return p
}

// table makes a MethodTable with a virtual method, an interface, and distances.
func (p *typeProgram) table(flags, base uint32, related arch.Addr, distances ...arch.Addr) arch.Addr {
	at := tablesAt + arch.Addr(tableGap*p.tables)
	p.tables++
	p.word(at, uint64(base)<<32|uint64(flags))
	p.word(at+8, uint64(related))
	p.word(at+16, 1<<16|1)
	after := at + 24 + 16
	for i, to := range append([]arch.Addr{indirectionAt, after}, distances...) {
		from := after + arch.Addr(4*i)
		binary.LittleEndian.PutUint32(p.memory[at][from-at:], uint32(to-from))
	}
	return at
}

const (
	classElement  = 0x14 << elementTypeAt
	numberElement = 0x08 << elementTypeAt
	vectorElement = elementVector << elementTypeAt
	arrayElement  = elementArray << elementTypeAt
)

// defined makes the MethodTable of a defined class of CoreLib.
func (p *typeProgram) defined(flags, base uint32, related arch.Addr, name string, distances ...arch.Addr) arch.Addr {
	mt := p.table(flags, base, related, distances...)
	p.owners[mt] = token(typeDefinition, p.class(p.core, 0, name))
	return mt
}

func (p *typeProgram) open(t testing.TB) *Types {
	t.Helper()
	d, err := contract.FromJSON([]byte(typesText), nil)
	if err != nil {
		t.Fatal(err)
	}
	references := func(_ *target.Reader, mt arch.Addr, _ uint32) ([]uint32, error) { return p.references[mt], nil }
	ts, err := NewTypes(p, d, &Names{metadata: p.metadata, owners: p.owners}, references)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// TestTypes names types, and says what they are made of.
func TestTypes(t *testing.T) {
	p := newTypeProgram()
	object := p.defined(classElement, 24, 0, "Object")
	number := p.defined(numberElement, 24, object, "Number")
	one := p.defined(kindDefinition|classElement, 1, 0, "Holder`1")
	two := p.defined(kindDefinition|classElement, 2, 0, "Pair`2")
	holder := p.table(classElement|isGeneric|hasFinalizer, 24, object, 0, one, number)
	list := tablesAt + arch.Addr(tableGap*64)
	p.word(list, uint64(uint32(holder-list))|uint64(uint32(number-list-4))<<32)
	pair := p.table(classElement|isGeneric|hasDispatchMap|hasSealedSlots, 32, object, 0, 0, two, list)
	vector := p.table(hasElements|vectorElement|8, 24, pair)
	matrix := p.table(hasElements|arrayElement|8, arrayBase+2*boundsSize, vector)
	unnamed := p.table(classElement, 24, object)
	stranger := p.table(classElement, 24, object)
	p.word(stranger+24+16, 0)
	statics := p.table(hasReferences, 32, 0)
	ts := p.open(t)
	for _, tt := range []struct {
		mt            arch.Addr
		display, full string
		kind          types.Kind
		args          []arch.Addr
		elem          arch.Addr
	}{
		{object, "Space.Object", "Space.Object", types.Class, nil, 0},
		{holder, "Space.Holder<Space.Number>", "Space.Holder`1", types.Class, []arch.Addr{number}, 0},
		{pair, "Space.Pair<Space.Holder<Space.Number>, Space.Number>", "Space.Pair`2", types.Class,
			[]arch.Addr{holder, number}, 0},
		{vector, "Space.Pair<Space.Holder<Space.Number>, Space.Number>[]", "", types.SZArray, nil, pair},
		{matrix, "Space.Pair<Space.Holder<Space.Number>, Space.Number>[,][]", "", types.Array, nil, vector},
		{statics, staticFields, staticFields, types.Class, nil, 0},
	} {
		c, err := ts.Class(tt.mt)
		if err != nil || c.Display != tt.display || c.Assembly != coreLib && tt.mt != statics {
			t.Errorf("%+v, %v; want %s", c, err, tt.display)
		}
		if full, err := ts.FullName(tt.mt); err != nil || tt.full != "" && full != tt.full {
			t.Errorf("%s is %s in the metadata, %v", tt.display, full, err)
		}
		typ, err := ts.Read(tt.mt)
		if err != nil || typ.Kind != tt.kind || !slices.Equal(typ.Args, tt.args) || typ.Elem != tt.elem {
			t.Errorf("%s: %+v, %v", tt.display, typ, err)
		}
	}
	if typ, err := ts.Read(matrix); typ.Rank != 2 || err != nil {
		t.Errorf("the rank is %d, %v", typ.Rank, err)
	}
	if is, err := ts.IsValueType(number); !is || err != nil {
		t.Errorf("a number is no value: %v", err)
	}
	if is, err := ts.IsValueType(object); is || err != nil {
		t.Errorf("a class is a value: %v", err)
	}
	if base, err := ts.Base(holder); base != object || err != nil {
		t.Errorf("the base is %v, %v", base, err)
	}
	if size, err := ts.ComponentSize(vector); size != 8 || err != nil {
		t.Errorf("an element has %d bytes, %v", size, err)
	}
	if _, err := ts.Class(unnamed); !errors.Is(err, ErrUnnamed) {
		t.Errorf("a type without a name: %v", err)
	}
	if err := ts.Check(stranger); !errors.Is(err, types.ErrCorrupt) {
		t.Errorf("memory of no program: %v", err)
	}
	if mt, err := ts.Named(0, "Space.Number"); mt != number || err != nil {
		t.Errorf("Space.Number is %v, %v", mt, err)
	}
}

// TestFields: a description of a class counts only if size and references are as described.
func TestFields(t *testing.T) {
	for name, tt := range map[string]struct {
		class      string
		base       uint32
		references []uint32
		known      int // fields
	}{
		"as described":          {"Known", 24 + inFront, []uint32{8}, 2},
		"another size":          {"Known", 32 + inFront, []uint32{8}, 0},
		"a smaller size":        {"Known", 16 + inFront, []uint32{8}, 0},
		"another reference":     {"Known", 24 + inFront, []uint32{16}, 0},
		"no reference":          {"Known", 24 + inFront, nil, 0},
		"too many references":   {"Known", 24 + inFront, []uint32{8, 16}, 0},
		"of a parameter's type": {"Holder`1", 24, nil, 1},
		"a reference parameter": {"Holder`1", 24, []uint32{8}, 1},
		"not described":         {"Unknown", 24, nil, 0},
		"of another assembly":   {"Other", 16 + inFront, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTypeProgram()
			mt := p.defined(classElement|hasReferences, tt.base, 0, tt.class)
			p.references[mt] = tt.references
			known := 0
			err := p.open(t).EachField(mt, func(_ string, offset uint32, reference bool) {
				if known++; reference != slices.Contains(tt.references, offset) {
					t.Errorf("the field at %d is a reference: %v", offset, reference)
				}
			})
			if known != tt.known || (err == nil) != (tt.known > 0) || err != nil && !errors.Is(err, types.ErrFields) {
				t.Errorf("%d fields, %v", known, err)
			}
		})
	}
}

// TestFieldsOfAssembly: a described class is one of a certain assembly.
func TestFieldsOfAssembly(t *testing.T) {
	p := newTypeProgram()
	space := p.space("assembly", "Space")
	for class, known := range map[string]int{"Holder`1": 0, "Other": 1} {
		mt := p.table(classElement, 16+inFront, 0)
		p.owners[mt] = token(typeDefinition, p.class(space, 0, class))
		n := 0
		if err := p.open(t).EachField(mt, func(string, uint32, bool) { n++ }); n != known {
			t.Errorf("%s has %d fields, %v", class, n, err)
		}
	}
}

// TestSelfType: a type that is made of itself has no name.
func TestSelfType(t *testing.T) {
	p := newTypeProgram()
	one := p.defined(kindDefinition|classElement, 1, 0, "Holder`1")
	self := tablesAt + arch.Addr(tableGap*p.tables)
	if mt := p.table(classElement|isGeneric, 24, 0, one, self); mt != self {
		t.Fatal(mt)
	}
	vector := tablesAt + arch.Addr(tableGap*p.tables)
	p.table(hasElements|vectorElement|8, 24, vector)
	ts := p.open(t)
	for _, mt := range []arch.Addr{self, vector} {
		if c, err := ts.Class(mt); err == nil {
			t.Errorf("it is %+v", c)
		}
	}
}

// TestMachine names the methods of state machines.
func TestMachine(t *testing.T) {
	p := newTypeProgram()
	object := p.defined(classElement, 24, 0, "Object")
	store := p.class(p.core, 0, "Store")
	nested := func(flags, base uint32, name string, distances ...arch.Addr) arch.Addr {
		mt := p.table(flags, base, object, distances...)
		p.owners[mt] = token(typeDefinition, p.class(p.core, store, name))
		return mt
	}
	run := nested(classElement, 40, "<Run>d__1")
	definition := nested(kindDefinition|classElement, 1, "<Find>d__2`1")
	find := p.table(classElement|isGeneric, 40, object, definition, object)
	ts := p.open(t)
	for mt, want := range map[arch.Addr]struct {
		module         arch.Addr
		exact, display string
	}{
		run:  {run, "Space.Store+<Run>d__1.MoveNext", "Space.Store.Run{async}"},
		find: {definition, "Space.Store+<Find>d__2`1.MoveNext", "Space.Store.Find<Space.Object>{async}"},
	} {
		m, err := ts.Machine(mt)
		got := []string{m.Exact, m.Display, m.Assembly}
		if err != nil || m.Module != want.module || !slices.Equal(got, []string{want.exact, want.display, coreLib}) {
			t.Errorf("%+v, %v, not %+v", m, err, want)
		}
	}
	if m, err := ts.Machine(object); !errors.Is(err, ErrUnnamed) {
		t.Errorf("an object is %+v, %v", m, err)
	}
}

// TestMade: classes that the compiler makes have a head only. One with variables is known by the base class.
func TestMade(t *testing.T) {
	p := newTypeProgram()
	object := p.defined(classElement, 24, 0, "Object")
	space := p.space(coreLib, "System.Runtime.CompilerServices")
	base := p.table(classElement, 40, object)
	p.owners[base] = token(typeDefinition, p.class(space, 0, "Continuation"))
	saved, statics := p.table(hasReferences, 64, base), p.table(hasReferences, 64, object)
	far := p.table(hasReferences, 64, object)
	for _, at := range []arch.Addr{saved, statics, far} { // other data follows
		clear(p.memory[at][16:])
	}
	p.memory[far+2*nearTables] = p.memory[far]
	ts := p.open(t)
	for mt, want := range map[arch.Addr]string{saved: continuationClass, statics: staticFields} {
		if c, err := ts.Class(mt); err != nil || c.Display != want {
			t.Errorf("%+v, %v, not %s", c, err, want)
		}
	}
	if at, err := ts.Base(saved); at != base || err != nil {
		t.Errorf("the base is %v, not %v: %v", at, base, err)
	}
	if ts.HasStatics(saved) || !ts.HasStatics(statics) || ts.HasStatics(object) {
		t.Error("static fields are not told from variables and objects")
	}
	if at, err := ts.Base(statics); at != 0 || err != nil {
		t.Errorf("the base of static fields is %v: %v", at, err)
	}
	if c, err := ts.Class(far + 2*nearTables); err == nil {
		t.Errorf("far from other classes is %+v", c)
	}
}

// pattern is memory with the same bytes again and again.
type pattern []byte

func (h pattern) ReadMemory(p []byte, at arch.Addr) error {
	if len(h) == 0 || at < 0x1000 || at > 1<<47 {
		return &target.ReadError{Addr: at, Len: len(p)}
	}
	for i := range p {
		p[i] = h[(int(at&0xffff)+i)%len(h)]
	}
	return nil
}

// FuzzTypes reads types out of hostile memory.
func FuzzTypes(f *testing.F) {
	p := newTypeProgram()
	mt := p.defined(classElement, 24, 0, "Known")
	f.Add(p.memory[mt], p.metadata, uint32(p.owners[mt]), uint64(mt))
	f.Add([]byte{0, 0x10, 0, 0, 0, 0, 0, 0}, p.metadata, uint32(7), uint64(0x1000))
	f.Fuzz(func(t *testing.T, memory, metadata []byte, token uint32, at uint64) {
		d, err := contract.FromJSON([]byte(typesText), nil)
		if err != nil {
			t.Fatal(err)
		}
		names := &Names{metadata: metadata, owners: map[arch.Addr]uint32{arch.Addr(at): token}}
		references := func(*target.Reader, arch.Addr, uint32) ([]uint32, error) { return []uint32{8}, nil }
		ts, err := NewTypes(pattern(memory), d, names, references)
		if err != nil {
			return
		}
		mt := arch.Addr(at)
		_, _ = ts.Read(mt)
		_, _ = ts.Base(mt)
		_, _ = ts.Named(0, "Space.Known")
		if c, err := ts.Class(mt); err == nil && len(c.Display) > maxTypeText {
			t.Errorf("a name of %d bytes", len(c.Display))
		}
		_ = ts.EachField(mt, func(string, uint32, bool) {})
		names.statics = section{mt, token}
		_, _ = names.Statics(pattern(memory))
	})
}
