package pdb

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/ecma335"
)

func TestParseErrors(t *testing.T) {
	good := one(1, "").bytes()
	spoil := func(change func(b []byte)) []byte {
		b := bytes.Clone(good)
		change(b)
		return b
	}
	stream := bytes.Index(good, []byte("PDB v1.0")) // the root's version; streams follow
	for name, tt := range map[string]struct {
		b    []byte
		want error
	}{
		"nothing":       {nil, ErrNotPortable},
		"text":          {[]byte("a PDB, honestly"), ErrNotPortable},
		"a Windows PDB": {[]byte(windowsSignature + "\x1aDS\x00\x00\x00"), ErrNotPortable},
		"the module's":  {container([]string{"#~"}, [][]byte{make([]byte, 24)}), ErrNotPortable},
		"no tables":     {container([]string{"#Pdb"}, [][]byte{make([]byte, 32)}), ErrMalformed},
		"a short stream": {container([]string{"#Pdb", "#~"},
			[][]byte{make([]byte, 31), make([]byte, 24)}), ErrMalformed},
		"streams beyond the end": {spoil(func(b []byte) { b[stream+17] = 0xff }), ErrMalformed},
		"no row counts": {container([]string{"#Pdb", "#~"},
			[][]byte{append(make([]byte, 24), 0x40, 0, 0, 0, 0, 0, 0, 0), make([]byte, 24)}), ErrMalformed},
	} {
		if _, err := Parse(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParse(t *testing.T) {
	b := one(1, "00 00 00 05 0a 03")
	b.id[19] = 7
	file := b.bytes()
	f, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if f.ID() != b.id || f.Methods() != 2 || f.Documents() != 3 {
		t.Errorf("id % x, %d methods, %d documents", f.ID(), f.Methods(), f.Documents())
	}
	if _, err := Parse(append(file, make([]byte, MaxSize)...)); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("too large: %v", err)
	}
}

func TestDocumentNames(t *testing.T) {
	b := newBuilder()
	src, file, long := b.blob([]byte("src")), b.blob([]byte("a.cs")), b.blob(make([]byte, 3000))
	part := func(i uint16) string { return string([]byte{0x80 | byte(i>>8), byte(i)}) }
	for _, tt := range []struct{ name, want string }{
		{"/\x00" + part(src) + part(file), "/src/a.cs"},
		{"\\" + part(src) + part(file), `src\a.cs`},
		{"\x00" + part(src) + part(file), "srca.cs"},
		{"/", ""}, // a name may be empty
		{"/" + part(long), strings.Repeat("\x00", 3000)},
		{"/" + part(long) + part(long), "error"},
		{"/" + part(9999), "error"},
		{"/\xff", "error"},
		{"é" + part(src), "error"},
		{"", "error"},
	} {
		b := *b
		b.row(ecma335.TableDocument, b.blob([]byte(tt.name)), 0, 0, 0)
		d, err := b.parse(t).Document(1)
		if got := d.Name; err != nil && tt.want != "error" || err == nil && got != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.name, got, err, tt.want)
		}
		b.Rows[ecma335.TableDocument], b.Counts[ecma335.TableDocument] = nil, 0
	}
	f := one(1, "").parse(t)
	for _, i := range []int32{-1, 0, 4, 1<<31 - 1} {
		if d, err := f.Document(i); err == nil {
			t.Errorf("document %d: %+v", i, d)
		}
	}
	d, err := f.Document(2)
	if err != nil || d.Name != "two.cs" {
		t.Errorf("document 2: %+v, %v", d, err)
	}
	if _, known := d.Is(nil); known {
		t.Error("a hash that is not there is known")
	}
}

func TestStateMachines(t *testing.T) {
	b := newBuilder()
	b.methods = 20
	for _, row := range [][2]uint16{{5, 1}, {3, 2}, {7, 4}, {7, 6}, {8, 9}, {10, 9}, {11, 21}, {0, 12}, {13, 0}} {
		b.row(ecma335.TableStateMachineMethod, row[:]...)
	}
	f := b.parse(t)
	for moveNext, kickoff := range map[uint32]uint32{5: 1, 3: 2} { // not sorted
		if got, ok := f.Kickoff(moveNext); !ok || got != kickoff {
			t.Errorf("Kickoff(%d) = %d, %v; want %d", moveNext, got, ok, kickoff)
		}
		if got, ok := f.MoveNext(kickoff); !ok || got != moveNext {
			t.Errorf("MoveNext(%d) = %d, %v; want %d", kickoff, got, ok, moveNext)
		}
	}
	for _, m := range []uint32{0, 1, 7, 11, 13, 21} { // 7: two kickoff methods
		if got, ok := f.Kickoff(m); ok {
			t.Errorf("Kickoff(%d) = %d", m, got)
		}
	}
	for _, m := range []uint32{0, 5, 9, 12, 21} { // 9: two state machines
		if got, ok := f.MoveNext(m); ok {
			t.Errorf("MoveNext(%d) = %d", m, got)
		}
	}
}

func TestAsync(t *testing.T) {
	b := newBuilder()
	b.methods = 9
	for rid, blob := range []string{
		1: "00000000 10000000 20000000 01 30000000 40000000 02",
		2: "01000000", // a handler at 0
		3: "",
		4: "00000000 10000000",
		5: "00000000 10000000 20000000 0a", // a method that is not there
		6: "00000000 00000080 20000000 01",
		7: "ffffffff",
		8: "00000000",
	} {
		if rid > 0 {
			b.custom(tagMethod, uint16(rid), kindAsync, unhex(blob))
		}
	}
	b.custom(tagMethod, 8, kindAsync, unhex("05000000")) // twice
	b.custom(tagDocument, 9, kindAsync, unhex("00000000"))
	f := b.parse(t)
	a, ok, err := f.Async(1)
	if !ok || err != nil || a.HasCatch || !slices.Equal(a.Steps, []Step{{0x10, 0x20, 1}, {0x30, 0x40, 2}}) {
		t.Errorf("Async(1) = %+v, %v, %v", a, ok, err)
	}
	if a, ok, err := f.Async(2); !ok || err != nil || !a.HasCatch || a.Catch != 0 || a.Steps != nil {
		t.Errorf("Async(2) = %+v, %v, %v", a, ok, err)
	}
	for m := uint32(3); m <= 7; m++ {
		if a, ok, err := f.Async(m); ok || err == nil {
			t.Errorf("Async(%d) = %+v, %v", m, a, ok)
		}
	}
	for _, m := range []uint32{0, 8, 9, 10} {
		if a, ok, err := f.Async(m); ok || err != nil {
			t.Errorf("Async(%d) = %+v, %v, %v", m, a, ok, err)
		}
	}
}

func TestSource(t *testing.T) {
	b := newBuilder()
	for range 9 {
		b.document("a.cs")
	}
	for rid, blob := range []string{
		1: "00000000 6869",            // "hi", as it is
		2: "00000000",                 // empty
		3: "02000000 010200fdff 6869", // deflated, in a stored block
		4: "01000000 010200fdff 6869", // more bytes come out than claimed
		5: "03000000 010200fdff 6869", // less
		6: "ffffffff 6869",            // a format of the future
		7: "00000001 010200fdff 6869", // 16 MB of seven bytes
		8: "0000",
	} {
		if rid > 0 {
			b.custom(tagDocument, uint16(rid), kindSource, unhex(blob))
		}
	}
	f := b.parse(t)
	for i, want := range map[int32]string{1: "hi", 2: "", 3: "hi"} {
		if got, ok, err := f.Source(i); string(got) != want || !ok || err != nil {
			t.Errorf("source %d = %q, %v, %v; want %q", i, got, ok, err, want)
		}
	}
	for i := int32(4); i <= 8; i++ {
		if got, ok, err := f.Source(i); err == nil || ok {
			t.Errorf("source %d = %d bytes, %v", i, len(got), ok)
		}
	}
	for _, i := range []int32{-1, 0, 9, 10} {
		if got, ok, err := f.Source(i); ok || err != nil || f.HasSource(i) {
			t.Errorf("source %d = %d bytes, %v, %v", i, len(got), ok, err)
		}
	}
}

// TestTruncated: the first n bytes of a PDB are an error.
func TestTruncated(t *testing.T) {
	_, good := fixturePDB(t)
	for n := range good {
		if f, err := Parse(good[:n:n]); err == nil {
			t.Fatalf("%d of %d bytes: %d methods", n, len(good), f.Methods())
		}
	}
}

// TestSpoilt changes bytes of a real PDB, in each run the same bytes: answers may be wrong, but they
// come.
func TestSpoilt(t *testing.T) {
	_, good := fixturePDB(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	parsed := 0
	for range 2000 {
		b := bytes.Clone(good)
		for range 1 + rnd.IntN(50) {
			b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		}
		if f, err := Parse(b); err == nil {
			parsed++
			touch(t, f, 300)
		}
	}
	if parsed < 100 {
		t.Errorf("only %d of 2000 could be read", parsed)
	}
}
