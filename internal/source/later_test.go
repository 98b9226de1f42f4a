package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/pace"
	"clrsnap/internal/testenv"
)

// TestLater: a PDB is read when its file is gone, and only the PDB of the assembly.
func TestLater(t *testing.T) {
	dll := testenv.Build(t, "spin")
	inside := testenv.BuildWith(t, "spin", testenv.DefaultRuntime, "-debug:embedded")
	other := testenv.Build(t, "brief")
	pdb, err := os.ReadFile(strings.TrimSuffix(dll, ".dll") + ".pdb")
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := os.ReadFile(strings.TrimSuffix(other, ".dll") + ".pdb")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		dll  string
		pdb  []byte
		why  string // "": there is a line
	}{
		{"beside", dll, pdb, ""}, {"embedded", inside, nil, ""},
		{"nowhere", dll, nil, "spin.pdb was not found beside the assembly"},
		{"of another assembly", dll, wrong, "does not belong to the assembly"},
		{"cut", dll, pdb[:1000], "spin.pdb: "},
	} {
		of := loaded(t, c.dll, "")
		if c.pdb != nil {
			if err := os.WriteFile(filepath.Join(of.root, "app/spin.pdb"), c.pdb, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		f := New(of, nil, nil, false)
		l, _, err := f.Later(module(false))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err := os.RemoveAll(filepath.Join(of.root, "app")); err != nil { // the process has ended
			t.Fatal(err)
		}
		a, err := l.Assembly()
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.why == "":
			checkSpin(t, c.name, a)
		case !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), c.why):
			t.Errorf("%s: %v, want %q", c.name, err, c.why)
		}
		l.Close()
	}
}

// TestFind: a PDB is found in a folder by its identity, also inside the assembly.
func TestFind(t *testing.T) {
	dll := testenv.Build(t, "spin")
	inside := testenv.BuildWith(t, "spin", testenv.DefaultRuntime, "-debug:embedded")
	debug := testenv.BuildWith(t, "spin", testenv.DefaultRuntime, "-o-")
	id, err := New(loaded(t, dll, ""), nil, nil, false).Identity(module(false))
	if err != nil {
		t.Fatal(err)
	}
	idInside, err := New(loaded(t, inside, ""), nil, nil, false).Identity(module(false))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		id   Identity
		dirs []string
		why  string
	}{
		{"a PDB", id, []string{t.TempDir(), filepath.Dir(dll)}, ""},
		{"an assembly", idInside, []string{filepath.Dir(inside)}, ""},
		{"another build, then the right one", id, []string{filepath.Dir(debug), filepath.Dir(dll)}, ""},
		{"another build", id, []string{filepath.Dir(debug)}, "does not belong to the assembly"},
		{"nowhere", id, []string{t.TempDir()}, "spin.pdb is in none of the folders"},
		{"no folder", id, nil, "spin.pdb is in none of the folders"},
		{"not known", Identity{PDB: "spin.pdb"}, []string{filepath.Dir(dll)}, "the PDB of the assembly is not known"},
		{"hostile", Identity{PDB: "../" + filepath.Base(filepath.Dir(dll)), ID: id.ID}, []string{filepath.Dir(dll)},
			"is in none of the folders"},
	} {
		a, err := NewFolders(c.dirs).Find(c.id, "spin.dll")
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.why == "":
			checkSpin(t, c.name, a)
		case !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), c.why):
			t.Errorf("%s: %v, want %q", c.name, err, c.why)
		}
	}
}

// TestUnread: reading of PDBs is bounded: for PDBs read later, for PDBs in folders, and for PDBs
// inside assemblies.
func TestUnread(t *testing.T) {
	dll := testenv.Build(t, "spin")
	inside := testenv.BuildWith(t, "spin", testenv.DefaultRuntime, "-debug:embedded")
	for name, of := range map[string]disk{"beside": loaded(t, dll, "spin.pdb"), "embedded": loaded(t, inside, "")} {
		read := func(most int64) (later, found, now error) {
			few := func() *pace.Allowance { return pace.NewAllowance(most, 0) }
			f := New(of, nil, nil, false)
			f.unread = few()
			l, _, err := f.Later(module(false))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, later = l.Assembly()
			folders := NewFolders([]string{filepath.Join(of.root, "app")})
			folders.unread = few()
			_, found = folders.Find(l.Identity, "spin.dll")
			f.unread = few()
			_, now = f.Assembly(module(false))
			return later, found, now
		}
		if later, found, now := read(1 << 20); later != nil || name == "embedded" && found != nil || now != nil {
			t.Errorf("%s: %v, %v, %v", name, later, found, now)
		}
		if later, found, now := read(100); later == nil || found == nil || now == nil {
			t.Errorf("%s, with little left: %v, %v, %v", name, later, found, now)
		}
	}
}

// checkSpin requires that methods are where the program's source has them.
func checkSpin(t *testing.T, name string, a *Assembly) {
	t.Helper()
	found := 0
	for method := uint32(1); method < 50; method++ {
		document, first, last := a.Extent(method)
		if document == 0 {
			continue
		}
		d, err := a.Document(document)
		if err != nil || !strings.HasPrefix(d.Name, "/testdata/apps/") || d.Algorithm != "SHA256" || len(d.Sum) != 32 {
			continue // of the compiler's own
		}
		p, err := a.Point(method, 0, 1)
		if errors.Is(err, ErrNone) {
			continue // the method begins with code outside all lines
		}
		found++
		if err != nil || p.Document != document || p.Line < first || p.Line > last || first < 1 {
			t.Errorf("%s: method %d is at %d to %d, its code at %+v, %v", name, method, first, last, p, err)
		}
	}
	if found == 0 {
		t.Errorf("%s: no method has a place", name)
	}
}
