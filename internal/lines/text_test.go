package lines

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"clrsnap/profile"
)

// TestExcerpts: lines are counted as by C#'s compiler, in any encoding of the text.
func TestExcerpts(t *testing.T) {
	const text = "one\r\ntwo\rthree\u2028four\n\nsix\u0085seven\nlast"
	units := []byte{0xff, 0xfe}
	for _, r := range text {
		units = append(units, byte(r), byte(r>>8))
	}
	big := []byte{0xfe, 0xff}
	for _, r := range text {
		big = append(big, byte(r>>8), byte(r))
	}
	for name, b := range map[string][]byte{
		"UTF-8": []byte(text), "with a mark": append([]byte{0xef, 0xbb, 0xbf}, text...), "UTF-16": units,
		"UTF-16, big-endian": big,
	} {
		got := excerpts(b, []int32{-3, 0, 1, 3, 4, 5, 8, 9, 1 << 30})
		want := []profile.Excerpt{
			{First: 1, Lines: []string{"one"}}, {First: 3, Lines: []string{"three", "four", ""}},
			{First: 8, Lines: []string{"last"}},
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	long := excerpts([]byte(strings.Repeat("ä", 1000)+"\n\xff"), []int32{1, 2})
	if l := long[0].Lines; len(l[0]) > maxLine+len("…") || !strings.HasSuffix(l[0], "ä…") || l[1] != "\uFFFD" {
		t.Errorf("%.20q… of %d bytes, %q", l[0], len(l[0]), l[1])
	}
	if got := excerpts(nil, []int32{1}); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

// TestWanted: all lines of a short method, the lines around recorded lines of a long method, and no
// lines of a method without samples.
func TestWanted(t *testing.T) {
	b := profile.NewBuilder(profile.Limits{})
	file := b.Sources().File(profile.SourceFile{Name: "a.cs"})
	place := func(first, last, line int32) int32 {
		return b.Location(profile.Location{
			Method: b.Method(profile.Method{Assembly: 1, Row: uint32(first), File: file, First: first, Last: last}),
			Line:   b.Sources().Line(profile.Line{File: file, Line: line}),
		})
	}
	b.Function(profile.Function{})
	for _, l := range []int32{place(10, 12, 11), place(1000, 2000, 1500), place(4000, 4020, 4010)} {
		b.Add(profile.Sample{Node: b.Child(0, l)})
	}
	b.Child(0, place(5000, 5010, 5005))
	got := newAdder(b.Recording(), Options{}).wanted()
	want := slices.Collect(func(yield func(int32) bool) {
		for n := int32(5); n <= 17; n++ { // 11 ± 6
			yield(n)
		}
		for n := int32(1494); n <= 1506; n++ {
			yield(n)
		}
		for n := int32(3998); n <= 4021; n++ { // all of the method, the lines before it, and its end
			yield(n)
		}
	})
	if len(got) != 1 || got[0].file != file || !slices.Equal(got[0].lines, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// FuzzExcerpts: excerpts never fails, and its results are bounded.
func FuzzExcerpts(f *testing.F) {
	f.Add([]byte("a\r\nb\u2028\xff"), int32(1), int32(2))
	f.Fuzz(func(t *testing.T, text []byte, a, b int32) {
		wanted := []int32{min(a, b), max(a, b)}
		n := 0
		for _, x := range excerpts(text, slices.Compact(wanted)) {
			if x.First < 1 {
				t.Errorf("line %d", x.First)
			}
			for _, l := range x.Lines {
				if n++; len(l) > maxLine+len("…") || strings.ContainsAny(l, lineEnds) {
					t.Errorf("a line of %d bytes: %q", len(l), l)
				}
			}
		}
		if n > 2 {
			t.Errorf("%d lines of 2", n)
		}
	})
}

// bombs are texts that say to be of a size; bad texts cannot be unpacked.
type bombs struct {
	size, unpacked int
	bad            bool
}

func (b *bombs) TextSize(int32) int { return b.size }

func (b *bombs) Text(int32) ([]byte, bool) {
	b.unpacked += b.size
	if b.bad {
		return nil, false
	}
	return make([]byte, b.size), true
}

// TestTextsInPDBs: however many documents a PDB contains, no more than the bounds is kept or unpacked.
func TestTextsInPDBs(t *testing.T) {
	for _, b := range []*bombs{
		{size: 16 << 20}, {size: 16 << 20, bad: true}, {size: maxTexts}, {size: 1 << 40}, {size: -1}, {},
	} {
		a := adder{}
		for document := range int32(1000) {
			a.textIn(b, document)
		}
		if a.kept > maxTexts || b.unpacked > maxUnpacked || a.kept == 0 != (b.bad || b.size <= 0 || b.size > maxTexts) {
			t.Errorf("%+v: %d bytes are kept", *b, a.kept)
		}
	}
}
