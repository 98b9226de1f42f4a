package lines

import (
	"os"
	"strings"
	"testing"

	"clrsnap/internal/pdb"
	"clrsnap/internal/pe"
	"clrsnap/internal/source"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

const folder = "../pdb/testdata"

// shapes is an assembly with its PDB inside: its identity, and a method that begins with points on
// three lines.
func shapes(t *testing.T) (id source.Identity, row uint32, points []pdb.Point) {
	t.Helper()
	f, err := os.Open(folder + "/shapes.dll")
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
	view, _ := d.Portable()
	id = source.Identity{PDB: "shapes.pdb", ID: view.ID(), Checksums: d.Checksums}
	for row = 1; row <= file.Methods(); row++ {
		p, err := file.Lines(row)
		if err != nil || len(p) < 3 || p[0].Hidden || p[1].Hidden || p[2].Hidden || p[0].IL != 0 {
			continue
		}
		if p[0].Line < p[1].Line && p[1].Line < p[2].Line && p[0].Document == p[2].Document {
			return id, row, p[:3]
		}
	}
	t.Fatal("there is no such method")
	return id, 0, nil
}

// TestLinesOfCalls: a call is at the line of the site that calls the frame above, as far as the line
// is certain.
func TestLinesOfCalls(t *testing.T) {
	id, row, points := shapes(t)
	for _, tt := range []struct {
		name     string
		from, to uint32 // IL of the code
		tier     string
		sites    []string // names of callees, a site on each line
		callees  []string // above the frame; "native": a native callee; "await …": a method that awaits the next
		line     int      // index in points
		exact    bool
	}{
		{"a leaf", points[0].IL, points[1].IL, "tier-1", []string{"A", "B"}, nil, 0, true},
		{"a leaf on two lines", points[0].IL, points[2].IL, "tier-1", []string{"A", "B"}, nil, 0, false},
		{"below native code", points[0].IL, points[2].IL, "tier-1", []string{"A", "B"}, []string{"native"}, 0, false},
		{"the second line", points[0].IL, points[2].IL, "tier-1", []string{"A", "B"}, []string{"N.T.B"}, 1, false},
		{"implements an interface", points[0].IL, points[2].IL, "tier-1", []string{"", "B"},
			[]string{"N.T.I.B"}, 1, true},
		{"unoptimised", points[1].IL, points[2].IL, "minopts", []string{"A", "B", "B"}, []string{"N.T.B"}, 1, true},
		{"optimised", points[1].IL, points[2].IL, "tier-1", []string{"A", "B", "B"}, []string{"N.T.B"}, 1, false},
		{"overrides", points[0].IL, points[1].IL, "tier-1", []string{"A"}, []string{"N.T.A", "N.U.A"}, 0, true},
		{"two callees", points[0].IL, points[2].IL, "tier-1", []string{"A", "B"}, []string{"N.T.B", "N.T.A"}, 0, false},
		{"awaited", points[0].IL, points[2].IL, "tier-1", []string{"A", "B"}, []string{"await N.T.A", "N.T.B"},
			1, false},
		{"no sites known", points[1].IL, points[2].IL, "minopts", nil, []string{"N.T.B"}, 1, false},
	} {
		b := profile.NewBuilder(profile.Limits{})
		assembly := b.Assembly(profile.Assembly{Name: "shapes", PDB: id.PDB, ID: id.ID})
		method := b.Method(profile.Method{Assembly: assembly, Row: row})
		var sites []profile.CallSite
		for i, name := range tt.sites {
			if name != "" {
				sites = append(sites, profile.CallSite{Method: method, IL: points[i].IL, Callee: name})
			}
		}
		b.Sites(sites)
		at := b.Location(profile.Location{
			Function: b.Function(profile.Function{Kind: snapshot.Managed, Method: "N.T.Caller"}),
			Tier:     tt.tier, Method: method, IL: int32(tt.from), Next: int32(tt.to),
		})
		node := b.Child(0, at)
		b.Add(profile.Sample{Node: node})
		for _, name := range tt.callees {
			f := profile.Function{Kind: snapshot.Managed, Method: name}
			if name == "native" {
				f.Kind = snapshot.Native
			} else if strings.HasPrefix(name, "await ") {
				f.Kind = snapshot.Async
			}
			child := b.Child(node, b.Location(profile.Location{Function: b.Function(f)}))
			if b.Add(profile.Sample{Node: child}); f.Kind == snapshot.Async {
				node = child
			}
		}
		r := b.Recording()
		if missing := Add(t.Context(), r, From{Assembly: Find(r, []string{folder})}, Options{}); len(missing) > 0 {
			t.Fatal(missing[0].Why)
		}
		got := r.Lines[r.Locations[at].Line]
		if got.Line != int32(points[tt.line].Line) || got.Approximate == tt.exact {
			t.Errorf("%s: line %d, approximate %v; want %d", tt.name, got.Line, got.Approximate, points[tt.line].Line)
		}
	}
}
