package pdb

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"clrsnap/internal/ecma335"
	"clrsnap/internal/pace"
)

// one makes a PDB of three documents and two methods. The second method has the points.
func one(document uint16, points string) *builder {
	b := newBuilder()
	for _, name := range []string{"one.cs", "two.cs", "three.cs"} {
		b.document(name)
	}
	b.method(1, unhex("00 00 00 01 63 01")) // IL 0: line 99
	b.method(document, unhex(points))
	return b
}

func TestLines(t *testing.T) {
	for _, tt := range []struct {
		name     string
		document uint16
		points   string
		want     []Point
	}{
		{"none", 0, "", nil},
		{"a local signature of two bytes", 1, "80 81  00 00 05 0a 03",
			[]Point{{0, 10, 10, 3, 8, 1, false, false}}},
		{"deltas forward and back", 1, "00  00 00 05 0a 03  04 00 02 04 02  06 02 7b 7d 0c",
			[]Point{{0, 10, 10, 3, 8, 1, false, false}, {4, 12, 12, 4, 6, 1, false, false},
				{10, 10, 12, 10, 7, 1, false, false}}},
		{"hidden points keep the line that deltas count from", 1,
			"00  00 00 00  02 00 05 0a 03  03 00 00  04 00 01 02 00",
			[]Point{{IL: 0, Document: 1, Hidden: true}, {2, 10, 10, 3, 8, 1, false, false},
				{IL: 5, Document: 1, Hidden: true}, {9, 11, 11, 3, 4, 1, false, false}}},
		{"several documents", 0, "00 02  01 00 05 0a 03  00 03  02 00 05 02 00  00 01 00 02  02 00 00",
			[]Point{{1, 10, 10, 3, 8, 2, false, false}, {3, 11, 11, 3, 8, 3, false, false},
				{IL: 5, Document: 2, Hidden: true}}},
		{"several lines, ending left of the start", 1, "00  00 03 7b 0a 09",
			[]Point{{0, 10, 13, 9, 6, 1, false, false}}},
		{"the highest", 1, "00  df ff ff ff 00 01 df ff ff ff c0 00 ff fe",
			[]Point{{0x1fffffff, 0x1fffffff, 0x1fffffff, 0xfffe, 0xffff, 1, false, false}}},
	} {
		f := one(tt.document, tt.points).parse(t)
		got, err := f.Lines(2)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}

// TestWrongLines: a point that breaks the rules spoils all of the method's lines, but no other method's.
func TestWrongLines(t *testing.T) {
	for name, tt := range map[string]struct {
		document uint16
		points   string
	}{
		"only a header":                {1, "00"},
		"no document":                  {0, "00 00 00 00 05 0a 03"},
		"a document that is not there": {4, "00 00 00 05 0a 03"},
		"a change to one that is not":  {1, "00 00 00 05 0a 03 00 04 02 00 05 02 00"},
		"a change to none":             {1, "00 00 00 05 0a 03 00 00 02 00 05 02 00"},
		"a change, and the end":        {1, "00 00 00 05 0a 03 00 02"},
		"half a point":                 {1, "00 00 00 05 0a 03 02 00 05"},
		"half a number":                {1, "00 00 00 05 0a 83"},
		"an offset of 2^29":            {1, "00 df ff ff ff 00 01 01 01 01 00 01 00 00"},
		"line −1":                      {1, "00 00 00 05 00 03 02 00 05 7f 00"},
		"a last line of 2^29":          {1, "00 00 01 00 df ff ff ff 03"},
		"the line of hidden points":    {1, "00 00 00 01 c0 fe ef ee 03"},
		"the last line of hidden ones": {1, "00 00 01 00 c0 fe ef ed 03"},
		"column −1":                    {1, "00 00 00 05 0a 00 02 00 05 00 7f"},
		"a last column of 2^16":        {1, "00 00 00 01 0a c0 00 ff ff"},
		"a last column of −1":          {1, "00 00 01 7f 0a 00"},
	} {
		f := one(tt.document, tt.points).parse(t)
		if got, err := f.Lines(2); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
		for _, il := range []uint32{0, 1, 0xffffffff} {
			if got, _, ok := f.LineIn(2, il, il+1); ok {
				t.Errorf("%s: IL %#x is at %+v", name, il, got)
			}
		}
		if got, _, ok := f.LineIn(1, 0, 0+1); !ok || got.Line != 99 {
			t.Errorf("%s: the other method is at %+v, %v", name, got, ok)
		}
	}
}

// TestAwait: a statement goes on behind its await. The await's hidden point has the offsets for waiting and
// going on before the next point.
func TestAwait(t *testing.T) {
	// IL 2: line 10; 5: hidden; 9: line 11; 12: hidden; 14: hidden; 20: line 12; 24: hidden
	const points = "00  02 00 05 0a 03  03 00 00  04 00 01 02 00  03 00 00  02 00 00  06 00 01 02 00  04 00 00"
	for _, tt := range []struct {
		name, steps string
		awaits      []uint32 // IL offsets
	}{
		{"none", "", nil},
		{"in both", "06000000 08000000 02  1a000000 1b000000 02", []uint32{5, 24}},
		{"from the hidden point itself", "05000000 08000000 02", []uint32{5}},
		{"across the next point", "06000000 09000000 02", nil},
		{"across the end", "1a000000 ffffff1f 02", []uint32{24}},
		{"backwards", "08000000 06000000 02", nil},
		{"behind another hidden point", "0f000000 10000000 02", nil},
		{"before the hidden point", "04000000 06000000 02", nil},
		{"in text", "0a000000 0b000000 02", nil},
		{"that goes on elsewhere", "06000000 08000000 01", nil},
	} {
		b := one(1, points)
		b.custom(tagMethod, 2, kindAsync, unhex("00000000"+tt.steps))
		f := b.parse(t)
		all, err := f.Lines(2)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			await := slices.Contains(tt.awaits, p.IL)
			if _, exact, ok := f.LineIn(2, p.IL+1, p.IL+1+1); p.Await != await || !ok || exact != (await || !p.Hidden) {
				t.Errorf("%s: %+v, exact %v", tt.name, p, exact)
			}
		}
	}
}

func TestLineAt(t *testing.T) {
	// IL 2: line 10; 5: hidden; 9: line 11; 12: hidden; 14: hidden
	f := one(1, "00  02 00 05 0a 03  03 00 00  04 00 01 02 00  03 00 00  02 00 00").parse(t)
	for _, tt := range []struct {
		il, line uint32
		exact    bool
	}{
		{0, 0, false}, {1, 0, false}, {2, 10, true}, {4, 10, true}, {5, 10, false}, {8, 10, false},
		{9, 11, true}, {11, 11, true}, {12, 11, false}, {14, 11, false}, {1 << 31, 11, false},
	} {
		p, exact, ok := f.LineIn(2, tt.il, tt.il+1)
		if p.Line != tt.line || exact != tt.exact || ok != (tt.line != 0) {
			t.Errorf("IL %d: line %d, exact %v, %v; want line %d, %v", tt.il, p.Line, exact, ok, tt.line, tt.exact)
		}
	}
	for _, points := range []string{"", "00 00 00 00 02 00 00", "00 00 00 05 00 03"} { // nothing, hidden, line 0
		if p, _, ok := one(1, points).parse(t).LineIn(2, 7, 7+1); ok {
			t.Errorf("% s: %+v", points, p)
		}
	}
	for _, method := range []uint32{0, 3, 1 << 24, 1<<32 - 1} {
		if p, _, ok := f.LineIn(method, 2, 2+1); ok {
			t.Errorf("method %d: %+v", method, p)
		}
		if p, err := f.Lines(method); err == nil {
			t.Errorf("method %d: %+v", method, p)
		}
	}
}

func TestLineIn(t *testing.T) {
	// IL 2: line 10; 5: line 10; 9: hidden; 11: line 13
	f := one(1, "00  02 00 05 0a 03  03 00 03 00 00  04 00 00  02 00 02 06 00").parse(t)
	for _, tt := range []struct {
		il, next, line uint32
		exact          bool
	}{
		{2, 5, 10, true}, {2, 9, 10, true}, {2, 11, 10, true}, {2, 12, 10, false}, {4, 1 << 31, 10, false},
		{9, 11, 10, false}, {11, 1<<32 - 1, 13, true}, {0, 3, 0, false},
	} {
		p, exact, ok := f.LineIn(2, tt.il, tt.next)
		if p.Line != tt.line || exact != tt.exact || ok != (tt.line != 0) {
			t.Errorf("IL %d to %d: line %d, exact %v, %v; want line %d, %v", tt.il, tt.next, p.Line, exact, ok,
				tt.line, tt.exact)
		}
	}
}

// TestDecodedBound: the decoded bytes of a PDB are bounded, even if many methods share a
// blob, but the bound is refilled.
func TestDecodedBound(t *testing.T) {
	f := one(1, "00  02 00 05 0a 03").parse(t)
	f.decode = pace.NewAllowance(4, 0)
	if _, err := f.Lines(2); err != errDecoded {
		t.Errorf("%v", err)
	}
	if p, _, ok := f.LineIn(2, 2, 2+1); ok {
		t.Errorf("%+v", p)
	}
	synctest.Test(t, func(t *testing.T) {
		f.decode = pace.NewAllowance(maxDecoded, decodedPerSecond)
		f.decode.Take(f.decode.Left())
		if _, err := f.Lines(2); err != errDecoded {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		if p, _, ok := f.LineIn(2, 2, 2+1); !ok {
			t.Errorf("a second later: %+v", p)
		}
	})
}

// TestRowsOfMethods: a PDB may have no rows of methods at all, but no single row may be missing:
// later rows would belong to other methods.
func TestRowsOfMethods(t *testing.T) {
	b := newBuilder()
	b.methods = 3
	if points, err := b.parse(t).Lines(3); points != nil || err != nil {
		t.Errorf("no rows: %v, %v", points, err)
	}
	for _, n := range []uint32{1, 3} {
		b := one(1, "")
		b.methods = n
		if _, err := Parse(b.bytes()); !errors.Is(err, ErrMalformed) {
			t.Errorf("2 rows for %d methods: %v", n, err)
		}
	}
	b = newBuilder()
	b.methods = maxRow + 1
	if _, err := Parse(b.bytes()); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d methods: %v", b.methods, err)
	}
	b = one(1, "")
	b.row(ecma335.TableMethodDef, 0, 0, 0, 0, 0, 0, 0)
	if _, err := Parse(b.bytes()); !errors.Is(err, ErrMalformed) {
		t.Errorf("a row of the module's: %v", err)
	}
}

// TestLongPoints: a lookup takes no longer than for the longest real method.
func TestLongPoints(t *testing.T) {
	for size, want := range map[int]bool{3 * 1000: true, maxBlob + 3: false} {
		b := newBuilder()
		b.document("a.cs")
		// A point of line 1 at IL 0, then hidden points.
		points := append(unhex("00 00 00 01 01 01"), bytes.Repeat([]byte{1, 0, 0}, size/3)...)
		b.method(1, points)
		f := b.parse(t)
		if p, exact, ok := f.LineIn(1, 5, 5+1); ok != want || exact || ok && p.Line != 1 {
			t.Errorf("%d bytes of points: %+v, %v", size, p, ok)
		}
		if all, err := f.Lines(1); (err == nil) != want {
			t.Errorf("%d bytes of points: %d, %v", size, len(all), err)
		}
	}
}

// TestFixtureLines: the comments in the fixture's source mark its points.
func TestFixtureLines(t *testing.T) {
	_, b := fixturePDB(t)
	f, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	documents := map[int32]bool{}
	several, hidden := 0, 0
	for m := range f.Methods() {
		points, err := f.Lines(m + 1)
		if err != nil {
			t.Fatal(err)
		}
		own := map[int32]bool{}
		for _, p := range points {
			own[p.Document], documents[p.Document] = true, true
			if p.Hidden {
				hidden++
			}
		}
		if len(own) > 1 {
			several++
		}
	}
	if several < 2 || hidden < 10 || len(documents) != 6 { // the constructor, and Lied
		t.Errorf("%d methods in several documents, %d hidden points, documents %v", several, hidden, documents)
	}
}
