package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/pe"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

// disk is a target that has one assembly loaded, from a file, at address 0.
type disk struct {
	*target.Reader
	dll  string // the target's path of the assembly
	root string
}

func (d disk) File(arch.Addr) string { return d.dll }

func (d disk) OpenFile(path string) (target.File, error) { return os.Open(filepath.Join(d.root, path)) }

// base is where the assembly is: the image of address 0 would be none.
const base = arch.Addr(0x10000)

// shifted is memory that begins at base.
type shifted struct{ target.Memory }

func (s shifted) ReadMemory(p []byte, addr arch.Addr) error {
	if addr < base {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	return s.Memory.ReadMemory(p, addr-base)
}

// loaded is a target with a copy of an assembly of testdata/apps, and of its PDB under a name.
func loaded(t *testing.T, dll, pdb string) disk {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "app"), 0o777); err != nil {
		t.Fatal(err)
	}
	link := func(from, to string) {
		if err := os.Symlink(from, filepath.Join(root, "app", to)); err != nil {
			t.Fatal(err)
		}
	}
	link(dll, filepath.Base(dll))
	if pdb != "" {
		link(strings.TrimSuffix(dll, ".dll")+".pdb", pdb)
	}
	f, err := os.Open(dll)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return disk{target.NewReader(shifted{pe.File(f)}), "/app/" + filepath.Base(dll), root}
}

func TestFinder(t *testing.T) {
	dll := testenv.Build(t, "spin")
	other := testenv.Build(t, "brief")
	inside := testenv.BuildWith(t, "spin", testenv.DefaultRuntime, "-debug:embedded")
	away := t.TempDir()
	pdb, err := os.ReadFile(strings.TrimSuffix(dll, ".dll") + ".pdb")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(away, "spin.pdb"), pdb, 0o666); err != nil {
		t.Fatal(err)
	}
	cut := loaded(t, dll, "")
	if err := os.WriteFile(filepath.Join(cut.root, "app/spin.pdb"), pdb[:len(pdb)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	strange := loaded(t, dll, "")
	wrong := strings.TrimSuffix(other, ".dll") + ".pdb"
	if err := os.Symlink(wrong, filepath.Join(strange.root, "app/spin.pdb")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		of   disk
		dirs []string
		why  string // "": there is a line
	}{
		{"beside", loaded(t, dll, "spin.pdb"), nil, ""},
		{"embedded", loaded(t, inside, ""), nil, ""},
		{"in a folder", loaded(t, dll, ""), []string{away}, ""},
		{"nowhere", loaded(t, dll, ""), []string{t.TempDir()}, "spin.pdb was not found beside the assembly"},
		{"of another assembly", strange, nil, "does not belong to the assembly"},
		{"of another assembly, and one in a folder", strange, []string{away}, ""},
		{"cut", cut, nil, "spin.pdb: "},
	} {
		f := New(c.of, c.dirs, nil)
		a, err := f.Assembly(base, false)
		if c.why != "" {
			if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s: %v, want %q", c.name, err, c.why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		lines := 0
		for method := uint32(1); method < 50; method++ {
			l, err := a.Line(method, 0)
			if errors.Is(err, ErrNone) {
				continue
			}
			if lines++; err != nil || !strings.HasPrefix(l.File, "/testdata/apps/") || l.Line < 1 || l.Column < 1 {
				t.Errorf("%s: method %d: %+v, %v", c.name, method, l, err)
			}
		}
		if lines == 0 {
			t.Errorf("%s: no method has a line", c.name)
		}
		if again, err := f.Assembly(base, true); again != a || err != nil {
			t.Errorf("%s: the same assembly, asked for again, is another", c.name)
		}
	}
}

func TestNoImage(t *testing.T) {
	f := New(disk{Reader: target.NewReader(shifted{}), dll: ""}, nil, nil)
	if _, err := f.Assembly(0, false); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

func TestBounded(t *testing.T) {
	dll := testenv.Build(t, "spin")
	f := New(loaded(t, dll, "spin.pdb"), nil, nil)
	f.room = 100
	if _, err := f.Assembly(base, false); !errors.Is(err, ErrNone) || errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if f.room != 100 {
		t.Errorf("room for %d bytes is left, of 100", f.room)
	}
}
