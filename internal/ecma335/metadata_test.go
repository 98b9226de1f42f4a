package ecma335

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
)

// sample is a small module: Ns.Outer`1 with methods A and B, Ns.Outer`1+In with
// method C; references to System.Collections.Generic.List`1 and +Enumerator.
func sample() *builder {
	b := newBuilder()
	ns, sys, gen := b.str("Ns"), b.str("System"), b.str("System.Collections.Generic")
	b.row(TableModule, 0, b.str("m.dll"), 0, 0, 0)
	b.row(TableTypeRef, 2|1<<2, b.str("List`1"), gen)   // scope: AssemblyRef 1
	b.row(TableTypeRef, 3|1<<2, b.str("Enumerator"), 0) // scope: TypeRef 1
	b.row(TableTypeRef, 2|1<<2, b.str("Nullable`1"), sys)
	b.row(TableTypeRef, 2|1<<2, b.str("ValueTuple`2"), sys)
	b.row(TableTypeRef, 2|1<<2, b.str("Decimal"), sys)
	b.row(TableTypeDef, 0, b.str("<Module>"), 0, 0, 1, 1)
	b.row(TableTypeDef, 1, b.str("Outer`1"), ns, 0, 1, 1)
	b.row(TableTypeDef, 1, b.str("Empty"), ns, 0, 1, 3)
	b.row(TableTypeDef, 2, b.str("In"), 0, 0, 1, 3)
	void, one := b.blob(0x20, 0, 1), b.blob(0x10, 1, 1, 1, 0x1e, 0)
	b.row(TableMethodDef, 0, 0, 0, b.str("A"), void, 1)
	b.row(TableMethodDef, 0, 0, 0x10, b.str("B"), one, 1)
	b.row(TableMethodDef, 0, 0, 0, b.str("C"), void, 3)
	b.row(TableParam, 0, 0, 0)
	b.row(TableParam, 0, 1, b.str("arg"))
	b.row(TableTypeSpec, b.blob(0x15, 0x12, 1<<2|1, 1, 8))
	b.row(TableTypeSpec, b.blob(0x12, 2<<2|2)) // stands for itself
	b.row(TableInterfaceImpl, 2, 1<<2|2)
	b.row(TableAssembly, 0, 1, 0, 0, 0, 0, 0, b.str("asm"), 0)
	b.row(TableAssemblyRef, 0, 0, 0, 0, 0, 0, b.str("lib"), 0, 0)
	b.row(TableNestedClass, 4, 2)
	b.row(TableGenericParam, 0, 0, 2<<1, b.str("T"))
	b.row(TableGenericParam, 0, 0, 2<<1|1, b.str("U"))
	b.row(TableMemberRef, 1<<3|4, b.str("Add"), void)
	b.row(TableMethodSpec, 2<<1, b.blob(0x0a, 1, 8))
	return b
}

func parse(t *testing.T, b *builder) *Metadata {
	t.Helper()
	m, err := Parse(b.bytes())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSample(t *testing.T) {
	for _, heapSizes := range []byte{0, 0x40} {
		b := sample()
		b.HeapSizes = heapSizes
		m := parse(t, b)
		touch(m, 100, func(what string, err error) {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
		if got, err := m.TypeName(4); err != nil || got != "Ns.Outer`1+In" {
			t.Errorf("TypeName(4) = %q, %v", got, err)
		}
		if got, err := m.TypeRefName(2); err != nil || got != "System.Collections.Generic.List`1+Enumerator" {
			t.Errorf("TypeRefName(2) = %q, %v", got, err)
		}
		for rid, want := range []uint32{1: 2, 2: 2, 3: 4} {
			if got, err := m.MethodOwner(uint32(rid)); rid > 0 && (err != nil || got != want) {
				t.Errorf("MethodOwner(%d) = %d, %v; want %d", rid, got, err, want)
			}
		}
		if def, ok, err := m.OnlyMethod(2, "B"); err != nil || !ok || def.Name != "B" || !def.IsStatic() {
			t.Errorf("OnlyMethod(2, B) = %+v, %v, %v", def, ok, err)
		}
		for _, none := range []string{"C", ""} { // another type's, and nobody's
			if def, ok, err := m.OnlyMethod(2, none); err != nil || ok {
				t.Errorf("OnlyMethod(2, %q) = %+v, %v, %v", none, def, ok, err)
			}
		}
		if names, err := m.ParamNames(2); err != nil || !slices.Equal(names, []string{"arg"}) {
			t.Errorf("ParamNames(2) = %q, %v", names, err)
		}
		if got, err := m.GenericParams(MakeToken(TableMethodDef, 2)); err != nil || !slices.Equal(got, []string{"U"}) {
			t.Errorf("GenericParams(method 2) = %q, %v", got, err)
		}
		if ok, err := m.Implements(2, "System.Collections.Generic.List`1"); err != nil || !ok {
			t.Errorf("Implements = %v, %v", ok, err)
		}
		if s, err := m.MethodSpec(1); err != nil || s.Method != MakeToken(TableMethodDef, 2) ||
			!bytes.Equal(s.Instantiation, []byte{0x0a, 1, 8}) {
			t.Errorf("MethodSpec(1) = %+v, %v", s, err)
		}
		if r, err := m.MemberRef(1); err != nil || r.Name != "Add" || r.Class != MakeToken(TableTypeSpec, 1) {
			t.Errorf("MemberRef(1) = %+v, %v", r, err)
		}
		if a, ok := m.AssemblyName(); !ok || a != "asm" {
			t.Errorf("AssemblyName = %q, %v", a, ok)
		}
	}
}

// TestUncompressed reads a #- stream with a MethodPtr table that reorders
// methods and with NestedClass and GenericParam tables that are out of order.
func TestUncompressed(t *testing.T) {
	b := sample()
	b.streamName = "#-"
	for _, m := range []uint32{3, 1, 2} { // Outer owns 3 and 1, In owns 2
		b.row(TableMethodPtr, m)
	}
	for _, p := range []uint32{2, 1} {
		b.row(TableParamPtr, p)
	}
	b.row(TableTypeDef, 2, b.str("Second"), 0, 0, 1, 4)
	b.Rows[TableNestedClass], b.Counts[TableNestedClass] = nil, 0
	b.row(TableNestedClass, 5, 4)
	b.row(TableNestedClass, 4, 2)
	b.row(TableGenericParam, 1, 0, 2<<1, b.str("T2"))
	m := parse(t, b)
	for rid, want := range []uint32{1: 2, 2: 4, 3: 2} {
		if got, err := m.MethodOwner(uint32(rid)); rid > 0 && (err != nil || got != want) {
			t.Errorf("MethodOwner(%d) = %d, %v; want %d", rid, got, err, want)
		}
	}
	if def, ok, err := m.OnlyMethod(2, "C"); err != nil || !ok || def.Name != "C" {
		t.Errorf("OnlyMethod(2, C) = %+v, %v, %v", def, ok, err)
	}
	if def, ok, err := m.OnlyMethod(2, "B"); err != nil || ok {
		t.Errorf("OnlyMethod(2, B) = %+v, %v, %v", def, ok, err)
	}
	if got, err := m.TypeName(5); err != nil || got != "Ns.Outer`1+In+Second" {
		t.Errorf("TypeName(5) = %q, %v", got, err)
	}
	if got, err := m.GenericParams(MakeToken(TableTypeDef, 2)); err != nil || !slices.Equal(got, []string{"T", "T2"}) {
		t.Errorf("GenericParams = %q, %v", got, err)
	}
	if names, err := m.ParamNames(2); err != nil || !slices.Equal(names, []string{"arg"}) {
		t.Errorf("ParamNames(2) = %q, %v", names, err)
	}
}

// TestOverloads: with two methods of a name, neither is the only method.
func TestOverloads(t *testing.T) {
	b := sample()
	b.Rows[TableMethodDef][9] = b.Rows[TableMethodDef][3]
	m := parse(t, b)
	if def, ok, err := m.OnlyMethod(2, "A"); err != nil || ok {
		t.Errorf("OnlyMethod(2, A) = %+v, %v, %v", def, ok, err)
	}
}

func TestWidths(t *testing.T) {
	for _, tt := range []struct {
		name string
		col  column
		set  func(w *widths)
		want uint8
	}{
		{"string", str, func(w *widths) { w.heaps = 6 }, 2},
		{"string, large heap", str, func(w *widths) { w.heaps = 1 }, 4},
		{"guid, large heap", guid, func(w *widths) { w.heaps = 2 }, 4},
		{"blob, large heap", blob, func(w *widths) { w.heaps = 4 }, 4},
		{"row, 65535", ref + column(TableField), func(w *widths) { w.rows[TableField] = 0xffff }, 2},
		{"row, 65536", ref + column(TableField), func(w *widths) { w.rows[TableField] = 0x10000 }, 4},
		{"list, 65536", list + column(TableMethodDef), func(w *widths) { w.rows[TableMethodDef] = 0x10000 }, 4},
		{"list through MethodPtr", list + column(TableMethodDef),
			func(w *widths) { w.rows[TableMethodPtr] = 0x10000 }, 4},
		{"2 tag bits, 16383", coded + typeDefOrRef, func(w *widths) { w.rows[TableTypeRef] = 0x3fff }, 2},
		{"2 tag bits, 16384", coded + typeDefOrRef, func(w *widths) { w.rows[TableTypeRef] = 0x4000 }, 4},
		{"5 tag bits, 2047", coded + hasCustomAttribute, func(w *widths) { w.rows[TableParam] = 0x7ff }, 2},
		{"5 tag bits, 2048", coded + hasCustomAttribute, func(w *widths) { w.rows[TableParam] = 0x800 }, 4},
		{"other table is large", coded + typeOrMethodDef, func(w *widths) { w.rows[TableParam] = 0x10000 }, 2},
		{"delta", coded + typeOrMethodDef, func(w *widths) { w.allWide = true }, 4},
		{"delta, number", u2, func(w *widths) { w.allWide = true }, 2},
	} {
		var w widths
		tt.set(&w)
		if got := w.of(tt.col); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, tt.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	good := sample().bytes()
	patch := func(off int, v uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[off:], v)
		return b
	}
	tables := bytes.Index(good, []byte{0, 0, 0, 0, 2, 0})
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "no BSJB"},
		{"signature", patch(0, 0x12345678), "no BSJB"},
		{"version", patch(12, 0xffffffff), "version string"},
		{"streams", patch(28, 0xffff0000), "65535 streams"},
		{"stream offset", patch(32, 0xfffffff0), "beyond the end"},
		{"stream size", patch(36, 0xffffffff), "beyond the end"},
		{"short", good[:50], "beyond the end"},
		{"table stream", patch(40, 0x00002323), "no table stream"},
		{"unknown table", patch(tables+12, 0xffffffff), "unknown table"},
		{"rows", patch(tables+24, 0x00ffffff), "ends at"},
		{"too many rows", patch(tables+24, 0xffffffff), "a token reaches"},
	} {
		if _, err := Parse(tt.b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	for n := range good {
		if m, err := Parse(good[:n]); err == nil {
			touch(m, 10, func(string, error) {})
		}
	}
}

func TestHostileRows(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(b *builder)
		call  func(m *Metadata) error
		want  string
	}{
		{"type nested in itself", func(b *builder) { b.Rows[TableNestedClass][1] = 4 },
			func(m *Metadata) error { _, err := m.TypeName(4); return err }, "deep"},
		{"enclosing type beyond the table", func(b *builder) { b.Rows[TableNestedClass][1] = 99 },
			func(m *Metadata) error { _, err := m.TypeName(4); return err }, "no such metadata row"},
		{"nested type without outer", func(b *builder) { b.Rows[TableNestedClass][0] = 2 },
			func(m *Metadata) error { _, err := m.TypeName(4); return err }, "no enclosing type"},
		{"reference within itself", func(b *builder) { b.Rows[TableTypeRef][3] = 3 | 2<<2 },
			func(m *Metadata) error { _, err := m.TypeRefName(2); return err }, "deep"},
		{"name outside the heap", func(b *builder) { b.Rows[TableTypeDef][7] = 0xfff0 },
			func(m *Metadata) error { _, err := m.TypeDef(2); return err }, "#Strings ends"},
		{"endless name", func(b *builder) {
			b.strings = append(b.strings, strings.Repeat("x", 9000)...)
			b.Rows[TableTypeDef][7] = uint32(len(b.strings) - 9000)
		},
			func(m *Metadata) error { _, err := m.TypeDef(2); return err }, "does not end"},
		{"signature outside the heap", func(b *builder) { b.Rows[TableMethodDef][4] = 0xfff0 },
			func(m *Metadata) error { _, err := m.MethodDef(1); return err }, "#Blob ends"},
		{"blob longer than the heap", func(b *builder) {
			b.Rows[TableMethodDef][4] = uint32(len(b.blobs))
			b.blobs = append(b.blobs, 0x7f)
		},
			func(m *Metadata) error { _, err := m.MethodDef(1); return err }, "#Blob"},
		{"type reference tag", func(b *builder) { b.Rows[TableTypeDef][9] = 3 },
			func(m *Metadata) error { _, err := m.TypeDef(2); return err }, "no table"},
		{"methods of no type", func(b *builder) { b.Rows[TableTypeDef][5] = 9 },
			func(m *Metadata) error { _, err := m.MethodOwner(1); return err }, ""},
		{"parameter beyond the signature", func(b *builder) { b.Rows[TableParam][4] = 7 },
			func(m *Metadata) error { _, err := m.ParamNames(2); return err }, "number 7"},
		{"parameters backwards", func(b *builder) { b.Rows[TableMethodDef][11] = 3; b.Rows[TableMethodDef][17] = 1 },
			func(m *Metadata) error { _, err := m.ParamNames(2); return err }, "owns rows"},
		{"generic parameter twice", func(b *builder) { b.Rows[TableGenericParam][6] = 2 << 1 },
			func(m *Metadata) error { _, err := m.GenericParams(MakeToken(TableTypeDef, 2)); return err },
			"out of place"},
		{"methods backwards", func(b *builder) { b.Rows[TableTypeDef][11] = 9 },
			func(m *Metadata) error { _, _, err := m.OnlyMethod(2, "A"); return err }, "owns rows"},
		{"row 0", func(*builder) {},
			func(m *Metadata) error { _, err := m.MethodDef(0); return err }, "no such metadata row"},
		{"table beyond all", func(*builder) {},
			func(m *Metadata) error { _, err := m.Cell(0xf0, 1, 0); return err }, "no such metadata row"},
	} {
		b := sample()
		tt.spoil(b)
		m := parse(t, b)
		if err := tt.call(m); tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		touch(m, 10, func(string, error) {})
	}
}
