package ecma335

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"clrsnap/internal/testenv"
)

// touch calls every accessor on up to limit rows of each table.
func touch(m *Metadata, limit uint32, report func(what string, err error)) {
	touchTypes(m, limit, report)
	touchMembers(m, limit, report)
	m.AssemblyName()
	m.ModuleName()
	m.MVID()
}

func each(m *Metadata, t Table, limit uint32, visit func(rid uint32)) {
	for rid := uint32(1); rid <= min(m.Rows(t), limit); rid++ {
		visit(rid)
	}
}

func touchTypes(m *Metadata, limit uint32, report func(what string, err error)) {
	typeSig := func(what string, b []byte, err error) {
		if err == nil {
			var s SigType
			if s, err = DecodeTypeSig(b); err == nil {
				m.FormatSig(s, TypeArgs{}, Short)
			}
		}
		report(what, err)
	}
	each(m, TableTypeDef, limit, func(rid uint32) {
		_, err := m.TypeDef(rid)
		report("TypeDef", err)
		_, err = m.TypeName(rid)
		report("TypeName", err)
		_, err = m.GenericParams(MakeToken(TableTypeDef, rid))
		report("GenericParams", err)
		_, _, err = m.OnlyMethod(rid, "")
		report("OnlyMethod", err)
		_, err = m.Fields(rid)
		report("Fields", err)
		_, err = m.Implements(rid, "")
		report("Implements", err)
		_, err = m.HasAttribute(MakeToken(TableTypeDef, rid), "")
		report("HasAttribute", err)
	})
	each(m, TableTypeRef, limit, func(rid uint32) {
		_, err := m.TypeRefName(rid)
		report("TypeRefName", err)
	})
	each(m, TableTypeSpec, limit, func(rid uint32) {
		b, err := m.TypeSpec(rid)
		typeSig("TypeSpec", b, err)
	})
}

func touchMembers(m *Metadata, limit uint32, report func(what string, err error)) {
	each(m, TableMethodDef, limit, func(rid uint32) {
		_, err := methodText(m, rid)
		report(fmt.Sprint("MethodDef ", rid), err)
		_, err = m.ParamNames(rid)
		report("ParamNames", err)
		_, err = m.GenericParams(MakeToken(TableMethodDef, rid))
		report("GenericParams", err)
		_, err = m.HasAttribute(MakeToken(TableMethodDef, rid), "")
		report("HasAttribute", err)
	})
	each(m, TableMemberRef, limit, func(rid uint32) {
		r, err := m.MemberRef(rid)
		if err == nil && len(r.Signature) > 0 && r.Signature[0]&0xf != 6 { // not a field's, II.23.2.4
			_, err = DecodeMethodSig(r.Signature)
		}
		report("MemberRef", err)
	})
	each(m, TableMethodSpec, limit, func(rid uint32) {
		s, err := m.MethodSpec(rid)
		if err == nil {
			_, err = DecodeMethodSpec(s.Instantiation)
		}
		report("MethodSpec", err)
	})
}

// Bounds of the allocations for reading metadata, and for naming 64 items of
// every kind.
const (
	allocatesPerByte = 500
	allocatesBesides = 1 << 17
)

// FuzzParse reads hostile metadata through every accessor.
func FuzzParse(f *testing.F) {
	f.Add(sample().bytes())
	ptr := sample()
	ptr.streamName = "#-"
	ptr.row(TableMethodPtr, 2)
	ptr.row(TableMethodPtr, 1)
	ptr.row(TableMethodPtr, 3)
	f.Add(ptr.bytes())
	loop := sample()
	loop.row(TableNestedClass, 4, 4)
	f.Add(loop.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var m *Metadata
		var err error
		testenv.Allocates(t, len(b), allocatesPerByte, allocatesBesides, func() {
			if m, err = Parse(b); err == nil {
				touch(m, 64, func(string, error) {})
			}
		})
		if err != nil {
			return
		}
		for tab := range Table(numTables) {
			n := m.Rows(tab)
			if _, err := m.Cell(tab, n+1, 0); err == nil {
				t.Fatalf("table %#x has %d rows and gave one more", tab, n)
			}
			for col := range schemas[tab] {
				if n > 0 {
					v, _ := m.Cell(tab, n, col)
					m.Blob(v)
					m.String(v)
					m.GUID(v)
				}
			}
		}
	})
}

// FuzzSignature reads hostile signatures.
func FuzzSignature(f *testing.F) {
	for _, tt := range typeSigs {
		f.Add(unhex(tt.sig))
	}
	for _, tt := range methodSigs {
		f.Add(unhex(tt.sig))
	}
	m, err := Parse(sample().bytes())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Allocates(t, len(b), allocatesPerByte, allocatesBesides, func() {
			for _, style := range []Style{Full, Short} {
				if s, err := DecodeTypeSig(b); err == nil && m.FormatSig(s, TypeArgs{}, style) == "" {
					t.Fatalf("% x has no text", b)
				}
				if s, err := DecodeMethodSig(b); err == nil {
					m.FormatParams(s, TypeArgs{}, style)
					m.FormatSig(s.Ret, TypeArgs{}, style)
				}
			}
			DecodeMethodSpec(b)
		})
	})
}

// FuzzRows is FuzzParse behind sound headers, so that every mutation reaches
// the rows and heaps.
func FuzzRows(f *testing.F) {
	for _, name := range []string{"#~", "#-"} {
		b := sample()
		tables, _ := cutStream(b.bytes())
		f.Add(name == "#-", tables, b.strings, b.blobs)
	}
	f.Fuzz(func(t *testing.T, uncompressed bool, tables, strings, blobs []byte) {
		name := "#~"
		if uncompressed {
			name = "#-"
		}
		b := container([]string{name, "#Strings", "#Blob"}, [][]byte{tables, strings, blobs})
		testenv.Allocates(t, len(b), allocatesPerByte, allocatesBesides, func() {
			if m, err := Parse(b); err == nil {
				touch(m, 64, func(string, error) {})
			}
		})
	})
}

// cutStream returns the first stream of a container.
func cutStream(b []byte) ([]byte, error) {
	var first []byte
	err := eachStream(b, func(_ string, _ int, data []byte) {
		if first == nil {
			first = data
		}
	})
	return first, err
}

// TestSpoiltMetadata reads real metadata with changed bytes, in each run the
// same bytes: the answers may be errors or wrong, but they come, and soon.
func TestSpoiltMetadata(t *testing.T) {
	good := load(t, filepath.Join(kit(t), "net10", "System.Text.Json.dll"))
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		b := bytes.Clone(good)
		for range 1 + rnd.IntN(2000) {
			b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		}
		for range rnd.IntN(3) { // the headers and row counts
			b[rnd.IntN(400)] = byte(rnd.Uint32())
		}
		if m, err := Parse(b); err == nil {
			touch(m, 300, func(string, error) {})
		}
	}
}
