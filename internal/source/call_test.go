package source

import (
	"os"
	"path/filepath"
	"testing"

	"clrsnap/internal/pdb"
	"clrsnap/internal/pe"
)

// fixture is a PDB with methods of several lines, and no checksum.
func fixture(t *testing.T) *Assembly {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "pdb", "testdata", "shapes.dll"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem := pe.File(f)
	d, err := pe.DebugDirectory(mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := pdb.Embedded(d, mem)
	if err != nil {
		t.Fatal(err)
	}
	return &Assembly{file: file, documents: map[int32]document{}}
}

// TestLineOfCall has calls on three lines of a method, A, B and C, and code for the IL from the first
// to the second line, or for more.
func TestLineOfCall(t *testing.T) {
	a := fixture(t)
	method, points := threeLines(t, a)
	at := [3]uint32{points[0].IL, points[1].IL, points[2].IL}
	line := [3]int{int(points[0].Line), int(points[1].Line), int(points[2].Line)}
	end := uint32(1 << 20)
	sites := func(names ...string) (out []Site) {
		for i, n := range names {
			if n != "" {
				out = append(out, Site{at[i], n})
			}
		}
		return out
	}
	for _, tt := range []struct {
		name     string
		from, to uint32
		callee   string
		sites    []Site
		unopt    bool // not optimised
		line     int  // index
		exact    bool
	}{
		{"one site", at[0], at[1], "A", sites("A", "B", "C"), false, 0, true},
		{"the only site is on a later line", at[0], at[2], "B", sites("", "B", "C"), false, 1, true},
		{"two lines, the name tells", at[0], at[2], "B", sites("A", "B", "C"), false, 1, false},
		{"two lines, the name does not tell", at[0], at[2], "X", sites("A", "B", "C"), false, 0, false},
		{"two lines with the name", at[0], at[2], "A", sites("A", "A", "C"), false, 0, false},
		{"moved to a later statement", at[1], at[2], "A", sites("A", "B", "C"), false, 0, false},
		{"no site here", at[1], at[2], "A", sites("A", "", "C"), false, 0, false},
		{"no site here, and none with the name", at[1], at[2], "X", sites("A", "", "C"), false, 1, false},
		{"a delegate", at[1], at[2], "b__0", sites("A", "Invoke", "C"), false, 1, true},
		{"a delegate elsewhere", at[1], at[2], "b__0", sites("Invoke", "B", "C"), false, 0, false},
		{"an inlined callee", at[1], at[2], "X", sites("A", "B", "C"), false, 1, false},
		{"an override with another name", at[1], at[2], "X", sites("A", "B", "C"), true, 1, true},
		{"the last line", at[2], end, "C", sites("A", "B", "C"), false, 2, true},
		{"no sites at all", at[1], at[2], "A", nil, false, 1, false},
	} {
		l, err := a.LineOfCall(method,
			&Call{IL: tt.from, Next: tt.to, Callee: tt.callee, Optimized: !tt.unopt, Sites: tt.sites})
		if err != nil || l.Line != line[tt.line] || l.Approximate == tt.exact {
			t.Errorf("%s: line %d, approximate %v, %v; want %d", tt.name, l.Line, l.Approximate, err, line[tt.line])
		}
	}
	if _, err := a.LineOfCall(1<<24, &Call{Callee: "A"}); err == nil {
		t.Error("a method that is none has a line")
	}
}

// threeLines finds a method that begins with three points on three lines.
func threeLines(t *testing.T, a *Assembly) (method uint32, points []pdb.Point) {
	t.Helper()
	for method = 1; method <= a.file.Methods(); method++ {
		p, err := a.file.Lines(method)
		if err != nil || len(p) < 3 || p[0].Hidden || p[1].Hidden || p[2].Hidden || p[0].IL != 0 {
			continue
		}
		if p[0].Line < p[1].Line && p[1].Line < p[2].Line && p[0].Document == p[2].Document {
			return method, p[:3]
		}
	}
	t.Fatal("there is no such method")
	return 0, nil
}
