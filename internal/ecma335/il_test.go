package ecma335

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

func TestBodyHeader(t *testing.T) {
	for _, c := range []struct {
		b        []byte
		at, size uint32
	}{
		{[]byte{0x0a}, 1, 2},
		{[]byte{0x13, 0x30, 8, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0}, 12, 0x1234},
	} {
		if at, size, err := BodyHeader(c.b); err != nil || at != c.at || size != c.size {
			t.Errorf("% x: %d, %d, %v", c.b, at, size, err)
		}
	}
	for _, b := range [][]byte{nil, {0x00}, {0x13}, {0x13, 0x20, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		{0x13, 0x30, 8, 0, 0, 0, 0, 0x7f, 0, 0, 0, 0}} {
		if at, size, err := BodyHeader(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("% x: %d, %d, %v", b, at, size, err)
		}
	}
}

func TestCalls(t *testing.T) {
	for _, c := range []struct {
		what string
		il   []byte
		want []Call
	}{
		{"ret", []byte{0x2a}, nil},
		{"ldarg.0; call; ret", []byte{0x02, 0x28, 1, 0, 0, 6, 0x2a}, []Call{{At: 1, Op: OpCall, Token: 0x06000001}}},
		{"ldc.i4 with call's number in it", []byte{0x20, 0x28, 0x28, 0x28, 0x28, 0x26, 0x2a}, nil},
		{"switch over two; newobj", []byte{0x45, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0x73, 2, 0, 0, 0x0a, 0x2a},
			[]Call{{At: 13, Op: OpNewobj, Token: 0x0a000002}}},
		{"constrained. tail. callvirt", []byte{0x00, 0xfe, 0x16, 1, 0, 0, 2, 0xfe, 0x14, 0x6f, 3, 0, 0, 0x0a, 0x2a},
			[]Call{{At: 1, Op: OpCallvirt, Token: 0x0a000003, Constrained: true}}},
		{"ldftn; calli", []byte{0xfe, 0x06, 1, 0, 0, 6, 0x29, 1, 0, 0, 0x11},
			[]Call{{Op: OpLdftn, Token: 0x06000001}, {At: 6, Op: OpCalli, Token: 0x11000001}}},
	} {
		if got, err := Calls(c.il); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v", c.what, got, err)
		}
	}
	for _, il := range [][]byte{{0x24}, {0xfe}, {0xfe, 0x08}, {0x28, 1, 0, 0},
		{0x45, 0xff, 0xff, 0xff, 0x7f, 0}, {0xff}} {
		if got, err := Calls(il); !errors.Is(err, ErrMalformed) {
			t.Errorf("% x: %+v, %v", il, got, err)
		}
	}
}

// TestRealIL reads the IL of every method of the framework's core: each call's token names a method.
func TestRealIL(t *testing.T) {
	layer.Live(t)
	b, err := os.ReadFile(filepath.Join(kit(t), "net10", "System.Private.CoreLib.dll"))
	if err != nil {
		t.Fatal(err)
	}
	md, resolve := openImage(t, b)
	methods, calls := 0, 0
	for rid := uint32(1); rid <= md.Rows(TableMethodDef); rid++ {
		def, err := md.MethodDef(rid)
		if err != nil {
			t.Fatal(err)
		}
		rva, err := md.MethodRVA(rid)
		if err != nil || rva == 0 {
			continue
		}
		body := b[resolve(rva):]
		at, size, err := BodyHeader(body[:min(len(body), MaxBodyHeader)])
		if err != nil {
			t.Fatalf("%s: %v", def.Name, err)
		}
		list, err := Calls(body[at : at+size])
		if err != nil {
			t.Errorf("%s: %v", def.Name, err)
		}
		for _, c := range list {
			if table := c.Token.Table(); c.Token.RID() == 0 || c.Token.RID() > md.Rows(table) ||
				(c.Op == OpCalli) != (table == TableStandAloneSig) {
				t.Errorf("%s: %+v", def.Name, c)
			}
		}
		methods, calls = methods+1, calls+len(list)
	}
	if t.Logf("%d calls in %d methods", calls, methods); methods < 20000 || calls < 50000 {
		t.Errorf("%d calls in %d methods only", calls, methods)
	}
}

// openImage returns the metadata of an assembly's file, and a function that finds an
// RVA in the file.
func openImage(t *testing.T, b []byte) (*Metadata, func(rva uint32) uint32) {
	t.Helper()
	le := binary.LittleEndian
	pe := le.Uint32(b[0x3c:])
	sections := int(le.Uint16(b[pe+6:]))
	table := pe + 24 + uint32(le.Uint16(b[pe+20:]))
	resolve := func(rva uint32) uint32 {
		for i := range uint32(sections) {
			s := b[table+40*i:]
			if at := le.Uint32(s[12:]); rva >= at && rva-at < le.Uint32(s[16:]) {
				return le.Uint32(s[20:]) + rva - at
			}
		}
		t.Fatalf("no section has RVA %#x", rva)
		return 0
	}
	md, err := Parse(b[bytes.Index(b, []byte("BSJB\x01\x00")):])
	if err != nil {
		t.Fatal(err)
	}
	return md, resolve
}

// FuzzCalls: any bytes give calls or an error, for little memory.
func FuzzCalls(f *testing.F) {
	f.Add([]byte{0x02, 0x28, 1, 0, 0, 6, 0x2a})
	f.Add([]byte{0x45, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0x73, 2, 0, 0, 0x0a, 0x2a})
	f.Fuzz(func(t *testing.T, b []byte) {
		BodyHeader(b)
		testenv.Allocates(t, len(b), 64, 1<<14, func() { Calls(b) })
	})
}
