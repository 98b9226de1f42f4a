package aot

import (
	"encoding/binary"
	"maps"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Places in the made-up program.
const (
	staticCode, staticData, staticList arch.Addr = 0x50000, 0x60000, 0x70000

	staticVariable, staticState = staticData, staticData + 0x100
	staticObject, staticStart   = staticData + 0x200, arch.Addr(0x2000) // of the static constructor
)

// staticProgram is the memory of a program with the static fields of one class.
type staticProgram map[arch.Addr][]byte

func (p staticProgram) ReadMemory(b []byte, at arch.Addr) error {
	for start, have := range p {
		if at >= start && at+arch.Addr(len(b)) <= start+arch.Addr(len(have)) {
			copy(b, have[at-start:])
			return nil
		}
	}
	return &target.ReadError{Addr: at, Len: len(b)}
}

// relative is the distance from one address to another.
func relative(from, to arch.Addr) []byte {
	return binary.LittleEndian.AppendUint32(nil, uint32(to-from))
}

// newStaticProgram has a stub with the variable and the state of a static constructor.
func newStaticProgram() staticProgram {
	data := make([]byte, 0x300)
	binary.LittleEndian.PutUint64(data[staticVariable-staticData:], uint64(staticObject))
	p := staticProgram{
		staticCode: make([]byte, 0x100), staticData: data, staticList: relative(staticList, staticVariable),
	}
	p.stub(0x10, staticState)
	return p
}

// stub adds a stub with the variable and a state.
func (p staticProgram) stub(at arch.Addr, state arch.Addr) {
	code := append([]byte{0x48, 0x8d, 0x05}, relative(staticCode+at+7, staticVariable)...)
	code = append(code, 0x48, 0x8b, 0x30, 0x48, 0x8d, 0x3d)
	code = append(append(code, relative(staticCode+at+17, state)...), 0xe9)
	copy(p[staticCode][at:], code)
}

// packedBy packs a pointer in one of two ways, behind other data that end at the pointer's place.
func packedBy(inline bool, place, to arch.Addr) []byte {
	const (
		fill  = 40 // more than fits into a command
		short = packedShort << packedBits
		one   = 1 << packedBits
	)
	b := append(relative(staticList+0x100, place-fill-8-3-4-8), 0, 0, 0, 0)
	b = append(b, packedZeros|short|one, fill-packedShort)
	b = append(b, packedDistances|2*one, 1, 2, 3, 4, 5, 6, 7, 8, packedCopy|3*one, 7, 8, 9, packedDistance|5*one)
	b = append(append(b, packedPointers|one), relative(staticList+0x100+arch.Addr(len(b))+1, 0x1234)...)
	if inline {
		b = append(append(b, packedPointers|one), relative(staticList+0x100+arch.Addr(len(b))+1, to)...)
	} else {
		b = append(b, packedPointer|one)
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	b = append(b, 0, 0, 0, 0)
	return append(b, relative(staticList+0x100+arch.Addr(len(b)), to)...)
}

// staticsOf has a static constructor, unless of a method with another name.
func staticsOf(t testing.TB, method string) *Names {
	t.Helper()
	b := newBuilder()
	class := b.class(b.space("assembly", "Space"), 0, "Holder`1")
	b.method(staticStart, token(typeDefinition, class), b.string(method), b.record(0, 0, 0, 0))
	field := b.record(0, b.string("Cache"))
	tables := &tables{fixupsAt: staticList + 0x80}
	for i, to := range []arch.Addr{0x8000, staticVariable, staticState + 8} {
		tables.fixups = append(tables.fixups, relative(tables.fixupsAt+arch.Addr(4*i), to)...)
	}
	tables.fieldMap, tables.contexts = table(gcStatic, 0, field, 1, 16), table(0, 2)
	n, err := parse(b.metadata, b.methods, mapAt, tables)
	if err != nil {
		t.Fatal(err)
	}
	n.statics = section{staticList, 4}
	return n
}

// TestStaticFields finds the class of static fields by the packed state of the static constructor, by the MethodTable
// of the state, and by the field that reflection can reach.
func TestStaticFields(t *testing.T) {
	byName, byTable := StaticClass{Name: "Space.Holder`1"}, StaticClass{Table: 0x8000}
	cache := map[uint32]string{16: "Cache"}
	for name, tt := range map[string]struct {
		change func(n *Names, p staticProgram)
		want   StaticClass
		names  map[uint32]string
	}{
		"inline":         {func(n *Names, p staticProgram) { p.pack(n, true); n.forget(true, true) }, byName, nil},
		"by fixup":       {func(n *Names, p staticProgram) { p.pack(n, false); n.forget(true, true) }, byName, nil},
		"by MethodTable": {func(n *Names, p staticProgram) { n.forget(false, true) }, byTable, nil},
		"by field":       {func(n *Names, p staticProgram) { clear(p[staticCode]) }, byTable, cache},
		"all":            {func(n *Names, p staticProgram) { n.forget(false, false) }, byTable, cache},
		"two classes": {func(n *Names, _ staticProgram) {
			n.static.classes[staticState] = 0x9000
		}, StaticClass{Table: 0x9000}, nil},
		"two states": {func(n *Names, p staticProgram) {
			n.forget(false, true)
			p.stub(0x80, staticState+8)
		}, StaticClass{}, nil},
		"nothing": {func(n *Names, p staticProgram) { n.forget(true, true) }, StaticClass{}, nil},
		"no jump": {func(n *Names, p staticProgram) { p[staticCode][0x10+stubJumpAt] = 0; n.forget(false, true) },
			StaticClass{}, nil},
	} {
		n, p := staticsOf(t, staticConstructor), newStaticProgram()
		tt.change(n, p)
		list, err := n.StaticFields(p, staticCode, staticCode+0x100)
		if err != nil || len(list) != 1 || list[0].Object != staticObject || list[0].Table != tt.want.Table ||
			list[0].Table == 0 && list[0].Name != tt.want.Name || !maps.Equal(list[0].Names, tt.names) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	n, p := staticsOf(t, "Run"), newStaticProgram()
	p.pack(n, true)
	n.forget(true, true)
	if list, err := n.StaticFields(p, staticCode, staticCode+0x100); err != nil || list[0].Name != "" {
		t.Errorf("of a method that is no constructor: %+v, %v", list, err)
	}
}

// pack packs the state of the static constructor.
func (p staticProgram) pack(n *Names, inline bool) {
	const at = staticList + 0x100
	p[at] = packedBy(inline, staticState, staticStart)
	n.packed = section{at, uint32(len(p[at]))}
}

// forget forgets the MethodTables, or the fields.
func (n *Names) forget(tables, fields bool) {
	if tables {
		clear(n.static.classes)
	}
	if fields {
		clear(n.static.fields)
	}
}

// FuzzStatics reads hostile code, packed data and maps.
func FuzzStatics(f *testing.F) {
	f.Add(newStaticProgram()[staticCode], packedBy(true, staticState, staticStart), table(gcStatic, 0, 0, 0, 16),
		table(0, 0))
	f.Fuzz(func(t *testing.T, code, packed, fields, contexts []byte) {
		n := staticsOf(t, staticConstructor)
		at := &tables{fixups: packed, fieldMap: fields, contexts: contexts}
		n.readStaticNames(at)
		n.packed = section{staticList + 0x100, uint32(len(packed))}
		p := newStaticProgram()
		p[staticCode], p[staticList+0x100] = code, packed
		list, err := n.StaticFields(p, staticCode, staticCode+arch.Addr(len(code)))
		if err != nil || len(list) != 1 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
