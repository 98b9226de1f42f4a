package source

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/pace"
	"clrsnap/internal/pe"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/symbols"
)

// disk is a target with one loaded assembly, from a file, at base.
type disk struct {
	*target.Reader
	dll  string // the target's path of the assembly
	root string

	file   func() (string, bool) // instead of dll
	host   string                // the target's path of the single-file program
	stream uint32                // bytes of the assembly's symbols in memory
}

// Where the runtime's Module is, and where the symbols are in the memory of the assembly.
const (
	moduleAt = arch.Addr(0x20)
	streamAt = 1 << 20
)

func module(passing bool) *Module {
	return &Module{Assembly: "spin", Address: moduleAt, Image: base, Passing: passing}
}

func (d disk) File(*Module) (string, bool) {
	if d.file != nil {
		return d.file()
	}
	return d.dll, true
}

func (disk) Unproved(arch.Addr) bool { return false }

func (d disk) SymbolStream(module arch.Addr) (arch.Addr, uint32) {
	if d.stream == 0 || module != moduleAt {
		return 0, 0
	}
	return base + streamAt, d.stream
}

func (d disk) Bundle() (target.File, string, error) {
	if d.host == "" {
		return nil, "", fs.ErrNotExist
	}
	f, err := d.OpenFile(d.host)
	return f, d.host, err
}

func (d disk) OpenFile(path string) (target.File, error) { return os.Open(filepath.Join(d.root, path)) }

// base is the address of the assembly: address 0 would mean no image.
const base = arch.Addr(0x10000)

// shifted is memory that begins at base.
type shifted struct{ target.Memory }

func (s shifted) ReadMemory(p []byte, addr arch.Addr) error {
	if addr < base {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	return s.Memory.ReadMemory(p, addr-base)
}

// loaded is a target with a copy of an assembly of testdata/apps, and of the assembly's PDB under a
// name.
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
	return disk{Reader: target.NewReader(shifted{pe.File(f)}), dll: "/app/" + filepath.Base(dll), root: root}
}

// places are the parts of TestFinder's targets.
type places struct {
	dll, inside string // the program, and the same with its PDB inside
	pdb         []byte // of dll
	away        string // a folder with pdb
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	p := &places{
		dll: testenv.Build(t, "spin"), inside: testenv.BuildWith(t, "spin", testenv.DefaultRuntime, "-debug:embedded"),
		away: t.TempDir(),
	}
	var err error
	if p.pdb, err = os.ReadFile(strings.TrimSuffix(p.dll, ".dll") + ".pdb"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.away, "spin.pdb"), p.pdb)
	return p
}

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// cut has half of its PDB beside it.
func (p *places) cut(t *testing.T) disk {
	d := loaded(t, p.dll, "")
	write(t, filepath.Join(d.root, "app/spin.pdb"), p.pdb[:len(p.pdb)/2])
	return d
}

// strange has the PDB of another assembly beside it, under the right name.
func (p *places) strange(t *testing.T) disk {
	d := loaded(t, p.dll, "")
	wrong := strings.TrimSuffix(testenv.Build(t, "brief"), ".dll") + ".pdb"
	if err := os.Symlink(wrong, filepath.Join(d.root, "app/spin.pdb")); err != nil {
		t.Fatal(err)
	}
	return d
}

// damaged has a broken PDB inside, which cannot be unpacked.
func (p *places) damaged(t *testing.T, beside bool) disk {
	t.Helper()
	image, err := os.ReadFile(p.inside)
	if err != nil {
		t.Fatal(err)
	}
	debug, err := pe.DebugDirectory(pe.File(bytes.NewReader(image)), 0)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := debug.Embedded(pe.File(bytes.NewReader(image)))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(image, []byte("MPDB"))
	for i := range 64 {
		image[at+100+i] ^= 0x55
	}
	dll := filepath.Join(t.TempDir(), "spin.dll")
	write(t, dll, image)
	d := loaded(t, dll, "")
	if beside {
		write(t, filepath.Join(d.root, "app/spin.pdb"), unpacked)
	}
	return d
}

// memory is memory with an assembly and, behind it, the assembly's symbols.
type memory struct {
	target.Memory
	symbols []byte
}

func (m memory) ReadMemory(p []byte, addr arch.Addr) error {
	if addr < base+streamAt {
		return m.Memory.ReadMemory(p, addr)
	}
	if at := int(addr - base - streamAt); at+len(p) <= len(m.symbols) {
		copy(p, m.symbols[at:])
		return nil
	}
	return &target.ReadError{Addr: addr, Len: len(p)}
}

// inMemory is loaded from no file, with symbols of size bytes.
func (p *places) inMemory(t *testing.T, symbols []byte, size int) disk {
	d := loaded(t, p.dll, "spin.pdb")
	d.Reader, d.stream = target.NewReader(memory{d.Reader, symbols}), uint32(size)
	d.file = func() (string, bool) { return "", true }
	return d
}

// single is a single-file program with the assembly; bundled says that its PDB is in the bundle.
func (p *places) single(t *testing.T, bundled bool) disk {
	d := loaded(t, p.dll, "")
	d.dll, d.host = "/bin/spin", "/bin/spin"
	if err := os.Mkdir(filepath.Join(d.root, "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	host, err := os.ReadFile(testenv.Publish(t, "spin", testenv.DefaultRuntime, testenv.SingleFile, "").Exe)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.root, d.host), host)
	if bundled {
		pdb := strings.TrimSuffix(p.dll, ".dll") + ".pdb"
		prog := testenv.PublishWith(t, "spin", testenv.DefaultRuntime, testenv.SingleFile, "", pdb)
		if err := os.Rename(prog.Exe, filepath.Join(d.root, d.host)); err != nil {
			t.Fatal(err)
		}
	} else {
		write(t, filepath.Join(d.root, "bin/spin.pdb"), p.pdb)
	}
	return d
}

func TestFinder(t *testing.T) {
	p := newPlaces(t)
	for _, c := range []struct {
		name string
		of   disk
		dirs []string
		why  string // "": there is a line
	}{
		{"beside", loaded(t, p.dll, "spin.pdb"), nil, ""},
		{"embedded", loaded(t, p.inside, ""), nil, ""},
		{"in a folder", loaded(t, p.dll, ""), []string{p.away}, ""},
		{"nowhere", loaded(t, p.dll, ""), []string{t.TempDir()}, "spin.pdb was not found beside the assembly"},
		{"of another assembly", p.strange(t), nil, "does not belong to the assembly"},
		{"of another assembly, and one in a folder", p.strange(t), []string{p.away}, ""},
		{"cut", p.cut(t), nil, "spin.pdb: "},
		{"damaged inside", p.damaged(t, false), nil, "unpacking "},
		{"damaged inside, and beside", p.damaged(t, true), nil, ""},
		{"in memory", p.inMemory(t, p.pdb, len(p.pdb)), nil, ""},
		{"in memory without", p.inMemory(t, nil, 0), nil, "was not found"},
		{"in memory, cut", p.inMemory(t, p.pdb[:len(p.pdb)-1], len(p.pdb)), nil, "cannot read"},
		{"in memory, too large", p.inMemory(t, p.pdb, 1<<32-1), nil, "more than"},
		{"in the bundle", p.single(t, true), nil, ""},
		{"beside the single-file program", p.single(t, false), nil, ""},
	} {
		f := New(c.of, c.dirs, nil, false)
		defer f.Close()
		a, err := f.Assembly(module(false))
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
		if again, err := f.Assembly(module(true)); again != a || err != nil {
			t.Errorf("%s: the same assembly, asked for again, is another", c.name)
		}
	}
}

// TestTooEarly: as long as the file of an assembly is not known, the lack of a line is not final.
func TestTooEarly(t *testing.T) {
	d := loaded(t, testenv.Build(t, "spin"), "spin.pdb")
	known, asked := false, 0
	d.file = func() (string, bool) {
		if asked++; !known {
			return "", false
		}
		return d.dll, true
	}
	f := New(d, nil, nil, false)
	for range 3 {
		if _, err := f.Assembly(module(false)); !errors.Is(err, ErrNone) {
			t.Fatal(err)
		}
	}
	known = true
	a, err := f.Assembly(module(false))
	if err != nil {
		t.Fatal(err)
	}
	before := asked
	if again, err := f.Assembly(module(false)); again != a || err != nil || asked != before {
		t.Errorf("what was found is looked for again: %v", err)
	}
	if room := maxPDBs - a.size; f.room != room {
		t.Errorf("room for %d bytes is left, want %d", f.room, room)
	}
}

func TestNoImage(t *testing.T) {
	f := New(disk{Reader: target.NewReader(shifted{}), dll: ""}, nil, nil, false)
	if _, err := f.Assembly(&Module{}); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

func TestBounded(t *testing.T) {
	dll := testenv.Build(t, "spin")
	f := New(loaded(t, dll, "spin.pdb"), nil, nil, false)
	f.room = 100
	if _, err := f.Assembly(module(false)); !errors.Is(err, ErrNone) || errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if f.room != 100 {
		t.Errorf("room for %d bytes is left, of 100", f.room)
	}
}

// An assembly that was refused because of much reading before is looked for again later.
func TestUnreadAgain(t *testing.T) {
	dll := testenv.Build(t, "spin")
	f := New(loaded(t, dll, "spin.pdb"), nil, nil, false)
	f.unread = pace.NewAllowance(100, 0)
	for range 2 {
		if _, err := f.Assembly(module(false)); !errors.Is(err, ErrNone) {
			t.Fatal(err)
		}
	}
	f.unread = newUnread()
	if _, err := f.Assembly(module(false)); err != nil {
		t.Error(err)
	}
}

// remote is a Source with PDBs.
type remote map[string][]byte

func (r remote) Open(_ context.Context, k symbols.Key) (symbols.File, error) {
	b, ok := r[k.Name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	f, err := os.CreateTemp("", "clrsnap-test-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name())
	_, err = f.Write(b)
	return f, err
}

// TestFetched: PDBs that are nowhere here are fetched on request, and not before.
func TestFetched(t *testing.T) {
	p := newPlaces(t)
	for name, c := range map[string]struct {
		has  remote
		want bool
	}{
		"there": {remote{"spin.pdb": p.pdb}, true}, "nowhere": {remote{}, false},
		"cut": {remote{"spin.pdb": p.pdb[:100]}, false},
	} {
		f := New(loaded(t, p.dll, ""), nil, nil, true)
		a, err := f.Assembly(module(false))
		if !errors.Is(err, ErrNone) || !a.Wanted() {
			t.Fatalf("%s: %v", name, err)
		}
		f.Fetch(t.Context(), c.has)
		again, err := f.Assembly(module(false))
		if again != a || a.Wanted() || (err == nil) != c.want || err != nil && !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
		if room := maxPDBs - a.size; f.room != room || c.want != (a.size > 0) {
			t.Errorf("%s: room for %d bytes is left, want %d", name, f.room, room)
		}
	}
}

// TestFetchEnds: PDBs that were not fetched for want of time are fetched the next time.
func TestFetchEnds(t *testing.T) {
	p := newPlaces(t)
	f := New(loaded(t, p.dll, ""), nil, nil, true)
	a, err := f.Assembly(module(false))
	if !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	f.Fetch(ctx, ended{})
	if !a.Wanted() {
		t.Fatal("it is not wanted any more")
	}
	f.Fetch(t.Context(), remote{"spin.pdb": p.pdb})
	if _, err := f.Assembly(module(false)); err != nil {
		t.Error(err)
	}
}

// ended is a Source whose context has ended.
type ended struct{}

func (ended) Open(ctx context.Context, _ symbols.Key) (symbols.File, error) { return nil, ctx.Err() }
