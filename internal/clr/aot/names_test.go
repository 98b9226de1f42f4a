package aot

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/testenv"
)

const mapAt arch.Addr = 0x10000

// builder makes the two blobs.
type builder struct{ metadata, methods []byte }

func newBuilder() *builder {
	return &builder{binary.LittleEndian.AppendUint32(nil, metadataSignature), make([]byte, 4)}
}

// number encodes a number as the compiler does.
func number(v uint32) []byte {
	for more := range uint(4) {
		if v < 1<<(7*(more+1)) {
			b := binary.LittleEndian.AppendUint64(nil, uint64(v)<<(more+1)|uint64(1<<more-1))
			return b[:more+1]
		}
	}
	return binary.LittleEndian.AppendUint32([]byte{0x0f}, v)
}

// record appends a record of numbers, and returns its place.
func (b *builder) record(numbers ...uint32) uint32 {
	at := uint32(len(b.metadata))
	for _, v := range numbers {
		b.metadata = append(b.metadata, number(v)...)
	}
	return at
}

func (b *builder) string(s string) uint32 {
	at := b.record(uint32(len(s)))
	b.metadata = append(b.metadata, s...)
	return at
}

func in(k kind, at uint32) uint32 { return at<<handleKindBits | uint32(k) }

func token(k kind, at uint32) uint32 { return uint32(k)<<tokenOffsetBits | at }

// class defines a class, and returns its place.
func (b *builder) class(space, enclosing uint32, name string) uint32 {
	return b.record(0, 0, space, b.string(name), 0, 0, enclosing)
}

// space defines a namespace of an assembly.
func (b *builder) space(assembly, name string) uint32 {
	scope := b.record(0, b.string(assembly))
	root := b.record(in(scopeDefinition, scope), b.string(""))
	return b.record(in(namespaceDefinition, root), b.string(name))
}

// method adds a method to the map whose code starts at an address.
func (b *builder) method(start arch.Addr, owner, name, signature uint32) {
	binary.LittleEndian.PutUint32(b.methods, binary.LittleEndian.Uint32(b.methods)+1)
	b.methods = append(b.methods, newOwner|newName|newSignature)
	b.methods = binary.LittleEndian.AppendUint32(b.methods, owner)
	b.methods = append(append(b.methods, number(name)...), number(signature)...)
	from := mapAt + arch.Addr(len(b.methods))
	b.methods = binary.LittleEndian.AppendUint32(b.methods, uint32(start-from))
}

// example has a method of a nested class with parameters of several kinds.
func example() *builder {
	b := newBuilder()
	space := b.space("assembly", "Space")
	outer := b.class(space, 0, "Outer`1")
	inner := b.class(space, outer, "Inner")
	system := b.record(in(scopeReference, b.record(0, b.string("System.Private.CoreLib"))), b.string("System"))
	integer := b.record(in(namespaceReference, system), b.string("Int32"))
	list := b.record(in(typeReference, integer)) // int[]
	pairs := b.record(in(typeDefinition, outer), 1, in(szArraySignature, list))
	reference := b.record(in(typeReference, integer))
	signature := b.record(0, 0, in(typeReference, integer), 4, in(typeReference, integer), in(szArraySignature, list),
		in(typeInstantiationSignature, pairs), in(byReferenceSignature, reference))
	b.method(0x2000, token(typeDefinition, inner), b.string("Run"), signature)
	return b
}

// table is a hash table of one entry.
func table(numbers ...uint32) []byte {
	const bucket, end, entry = 2, 4, 1 << 1
	b := []byte{0, bucket, end, 0, entry}
	for _, v := range numbers {
		b = append(b, number(v)...)
	}
	return b
}

// invoked adds a method that reflection can call, of the class of the map's first method.
func (b *builder) invoked(start arch.Addr, name string) *tables {
	const fixupsAt arch.Addr = 0x20000
	owner := binary.LittleEndian.Uint32(b.methods[5:])
	method := b.record(0, 0, b.string(name), b.record(0, 0, 0, 0))
	fixups := binary.LittleEndian.AppendUint32(nil, 0x100) // a MethodTable
	from := fixupsAt + 4
	return &tables{
		fixups: binary.LittleEndian.AppendUint32(fixups, uint32(start-from)), fixupsAt: fixupsAt,
		typeMap: table(0, owner), invokeMap: table(invokeHasEntrypoint, method, 0, 1), low: 0x1000, high: 0x4000,
	}
}

// TestInvoked names a method that only the invoke map has, unless its code lies elsewhere or belongs to another
// method.
func TestInvoked(t *testing.T) {
	for start, want := range map[arch.Addr]string{
		0x3000: "Space.Outer`1+Inner.Main", 0x4000: "", 0xfff: "", 0x2000: "Space.Outer`1+Inner.Run",
	} {
		b := example()
		called := b.invoked(start, "Main")
		n, err := parse(b.metadata, b.methods, mapAt, called)
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := n.Method(start); m.Exact != want || ok != (want != "") {
			t.Errorf("at %v is %+v, %v", start, m, ok)
		}
	}
}

// TestNames names a method by made-up metadata. TestAheadNames has the names of real programs.
func TestNames(t *testing.T) {
	b := example()
	n, err := parse(b.metadata, b.methods, mapAt, &tables{})
	if err != nil {
		t.Fatal(err)
	}
	want := name.Method{
		Exact: "Space.Outer`1+Inner.Run", Display: "Space.Outer`1+Inner.Run", Short: "Outer`1.Inner.Run",
		Signature: "(int, int[], Outer<int[]>, ref int)", Assembly: "assembly",
	}
	for range 2 { // the second time the method is known
		if m, ok := n.Method(0x2000); !ok || m != want {
			t.Errorf("%+v, %v", m, ok)
		}
	}
	if m, ok := n.Method(0x2001); ok {
		t.Errorf("no method starts there, but %+v", m)
	}
}

// TestHostileNames: types inside each other, wrong lengths, and endless names give no name.
func TestHostileNames(t *testing.T) {
	for what, make := range map[string]func(b *builder) (owner, name uint32){
		"a class in itself": func(b *builder) (uint32, uint32) {
			at := uint32(len(b.metadata))
			b.metadata = append(b.metadata, make7(0, 0, 0, at+7, 0, 0, at)...)
			b.string("Class")
			return token(typeDefinition, at), at + 7
		},
		"a string that is too long": func(b *builder) (uint32, uint32) {
			return token(typeDefinition, b.class(b.space("a", "b"), 0, "Class")), b.record(1 << 30)
		},
		"a namespace of an unknown kind": func(b *builder) (uint32, uint32) {
			return token(typeReference, b.record(in(0x7f, 5), b.string("Class"))), b.string("Run")
		},
		"a type that is none": func(b *builder) (uint32, uint32) {
			return token(stringRecord, b.string("Class")), b.string("Run")
		},
		"a long name in each class": func(b *builder) (uint32, uint32) {
			space, at := b.space("a", "b"), uint32(0)
			for range 20 {
				at = b.class(space, at, strings.Repeat("x", 4000))
			}
			return token(typeDefinition, at), b.string("Run")
		},
	} {
		b := newBuilder()
		owner, method := make(b)
		b.method(0x2000, owner, method, 0)
		n, err := parse(b.metadata, b.methods, mapAt, &tables{})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if m, ok := n.Method(0x2000); ok {
			t.Errorf("%s is %.100q", what, m.Exact)
		}
	}
	b := example()
	for n := range len(b.methods) {
		if _, err := parse(b.metadata, b.methods[:n], mapAt, &tables{}); n > 3 && !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes of the map: %v", n, err)
		}
	}
}

// make7 is a record of numbers of one byte each.
func make7(numbers ...uint32) (out []byte) {
	for _, v := range numbers {
		out = append(out, byte(v<<1))
	}
	return out
}

// FuzzNames names the methods of arbitrary blobs.
func FuzzNames(f *testing.F) {
	b := example()
	called := b.invoked(0x3000, "Main")
	f.Add(b.metadata, b.methods, called.invokeMap, called.typeMap, called.fixups)
	f.Fuzz(func(t *testing.T, metadata, methods, invokes, types, fixups []byte) {
		const besides = 1 << 21 // for the names of so many methods
		size := len(metadata) + len(methods) + len(invokes) + len(types)
		testenv.Allocates(t, size, 200, besides, func() {
			n, err := parse(metadata, methods, mapAt, &tables{
				invokeMap: invokes, typeMap: types, fixups: fixups, fixupsAt: called.fixupsAt, low: 0x1000,
				high: 0x4000,
			})
			if err != nil {
				return
			}
			for i := range min(8, len(n.entries)) {
				start := n.entries[i].start
				m, ok := n.Method(start)
				again, _ := n.Method(start)
				if m != again || ok != (m.Exact != "") || len(m.Display)+len(m.Signature) > 4*maxText {
					t.Errorf("%+v, %v, then %+v", m, ok, again)
				}
			}
		})
	})
}
