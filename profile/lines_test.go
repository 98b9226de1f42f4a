package profile_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
)

// linesText is the lines of a function as text.
func linesText(r *profile.Recording, m profile.Mode, function string) []string {
	var out []string
	for f, lines := range r.LineTotals(m) {
		if r.Functions[f].Display != function {
			continue
		}
		for _, l := range lines {
			about := ""
			if l.Approximate {
				about = "~"
			}
			out = append(out, fmt.Sprintf("%s%d: %d %d %d", about, l.Line,
				l.Self.All().Samples, l.Direct.All().Samples, l.Total.All().Samples))
		}
	}
	return out
}

// TestLineTotals: recursion counts once in a line, places of one line are one, and an event in no code counts for
// the code of the event's caller. Selections and folds keep the lines.
func TestLineTotals(t *testing.T) {
	r := profiletest.SourceShop()
	for name, r := range map[string]*profile.Recording{
		"whole": r, "selected": r.Select(profile.Selection{}), "folded": r.FoldFramework(),
		"without text": r.WithoutText(),
	} {
		for _, c := range []struct {
			mode     profile.Mode
			function string
			want     []string
		}{
			{profile.CPU, "Shop.Program.Main", []string{"~14: 1 1 2", "12: 0 0 8"}},
			{profile.CPU, "Shop.Tree.Visit", []string{"~22: 8 8 8", "23: 0 0 9"}},
			{profile.Alloc, "Shop.Tree.Visit", []string{"23: 0 1 1"}},
			{profile.Wall, "Shop.Tree.Visit", nil},
		} {
			if got := linesText(r, c.mode, c.function); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v of %s: %q, want %q", name, c.mode, c.function, got, c.want)
			}
		}
	}
	if bare := r.WithoutLines(); len(bare.LineTotals(profile.CPU)) > 0 || len(bare.Lines)+len(bare.Files) > 0 ||
		len(bare.Samples) != len(r.Samples) {
		t.Error("there are lines without lines")
	}
}

// TestSourcesOnce: a file and a line are added once, also to a recording that has files and lines.
func TestSourcesOnce(t *testing.T) {
	r := profiletest.SourceShop()
	files, lines := len(r.Files), len(r.Lines)
	s := profile.NewSources(r)
	if i := s.File(r.Files[1]); i != 1 {
		t.Errorf("the file is added as %d", i)
	}
	if i := s.Line(r.Lines[2]); i != 2 {
		t.Errorf("the line is added as %d", i)
	}
	same := r.Files[1]
	same.Checksum = profile.Checksum{Algorithm: "SHA256", Sum: []byte{1}}
	if i := s.File(same); int(i) != files || len(r.Lines) != lines {
		t.Errorf("a file with another text is file %d of %d", i, files)
	}
	if text, ok := r.Files[1].Line(23); !ok || text == "" {
		t.Error("line 23 has no text")
	}
	for _, n := range []int32{-1, 0, 19, 25, 1 << 30} {
		if _, ok := r.Files[1].Line(n); ok {
			t.Errorf("line %d has text", n)
		}
	}
	empty := profile.Recording{}
	s = profile.NewSources(&empty)
	if i := s.Line(profile.Line{File: s.File(profile.SourceFile{Name: "a.cs"}), Line: 3}); i != 1 ||
		!reflect.DeepEqual(empty.Files[0], profile.SourceFile{}) || empty.Lines[0] != (profile.Line{}) {
		t.Errorf("the first line is %d", i)
	}
}
