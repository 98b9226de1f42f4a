package module

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/unwind"
)

const (
	r  = target.PermRead
	rx = target.PermRead | target.PermExec
)

func mapping(start, end arch.Addr, perm target.Perm, path string, inode uint64, offset uint64) target.Mapping {
	return target.Mapping{Start: start, End: end, Perm: perm, Path: path, Inode: inode, Offset: offset}
}

func TestSet(t *testing.T) {
	s := NewSet(arch.AMD64, nil, nil)
	maps := target.Mappings{
		mapping(0x1000, 0x2000, r, "/lib/a.so", 1, 0),
		mapping(0x2000, 0x4000, rx, "/lib/a.so", 1, 0x1000),
		mapping(0x4000, 0x5000, r, "/lib/a.so", 1, 0x3000),
		mapping(0x6000, 0x7000, rx, "", 0, 0),
		mapping(0x8000, 0x9000, rx, "/memfd:doublemapper (deleted)", 9, 0),
		mapping(0xa000, 0xb000, rx, "[vdso]", 0, 0),
		mapping(0xc000, 0xd000, rx, "/lib/b.so", 2, 0),
	}
	if s.Update(maps) {
		t.Error("a module was unloaded from an empty set")
	}
	for _, tt := range []struct {
		addr arch.Addr
		name string // of the module
		code bool
	}{
		{0x0, "", false}, {0x1000, "", false}, {0x1fff, "", false}, {0x2000, "a.so", true},
		{0x3fff, "a.so", true}, {0x4000, "", false},
		{0x6000, "", true}, {0x6fff, "", true}, {0x7000, "", false}, {0x8000, "", true}, {0xa800, "[vdso]", true},
		{0xc000, "b.so", true}, {0xd000, "", false}, {^arch.Addr(0), "", false},
	} {
		name := ""
		if m := s.Find(tt.addr); m != nil {
			name = m.Name
		}
		if name != tt.name || s.Executable(tt.addr) != tt.code {
			t.Errorf("%v: module %q, executable %v", tt.addr, name, s.Executable(tt.addr))
		}
	}
	if a := s.Find(0x2000); a.Start != 0x1000 || a.Path != "/lib/a.so" {
		t.Errorf("%+v", a)
	}
	a, b := s.Find(0x2000), s.Find(0xc000)
	if s.Update(maps) || s.Find(0x2000) != a {
		t.Error("the same mappings made other modules")
	}
	maps[6].Inode = 3 // the file has been replaced
	if !s.Update(maps) || s.Find(0x2000) != a || s.Find(0xc000) == b {
		t.Error("a replaced file is taken for the old one")
	}
	if !s.Update(maps[3:]) || s.Find(0x2000) != nil || len(s.All()) != 2 {
		t.Errorf("an unloaded module is still there: %v", s.All())
	}
	s.Close()
	if len(s.All()) != 0 || s.Find(0xc000) != nil {
		t.Error("there are modules after Close")
	}
}

func TestUnreadableModule(t *testing.T) {
	denied := errors.New("denied")
	s := NewSet(arch.AMD64, nothing{}, func(*target.Mapping) (target.File, error) { return nil, denied })
	s.Update(target.Mappings{mapping(0x2000, 0x4000, rx, "/lib/a.so", 1, 0)})
	m := s.Find(0x2000)
	if _, err := m.Step(0x2000); !errors.Is(err, unwind.ErrNoInfo) || !errors.Is(err, denied) {
		t.Errorf("Step: %v", err)
	}
	if _, err := m.Lookup("x"); !errors.Is(err, denied) {
		t.Errorf("Lookup: %v", err)
	}
	if _, _, ok := m.Symbol(0x2000); ok {
		t.Error("a symbol of a file that cannot be read")
	}
	if m.InPLT(0x2000) {
		t.Error("a PLT in a file that cannot be read")
	}
}

type nothing struct{}

func (nothing) ReadMemory(p []byte, addr arch.Addr) error {
	return &target.ReadError{Addr: addr, Len: len(p)}
}

// The modules of the test's own process: every module can be loaded, and the address of each looked-up exported
// symbol leads back to the symbol.
func TestLiveModules(t *testing.T) {
	p, err := live.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	maps, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(p.Arch(), p, p.OpenMapping)
	defer s.Close()
	s.Update(maps)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range s.All() {
		names[m.Name] = true
		if _, err := m.Image(); err != nil {
			t.Errorf("%s: %v", m.Path, err)
		}
		if m.Name == "[vdso]" {
			checkVDSO(t, m)
		}
	}
	if !names[filepath.Base(exe)] {
		t.Errorf("%s is not among %v", exe, names)
	}
}

// TestReplacedFile: a file with the mapped module's layout but another build id is not used. The module is read from
// memory then.
func TestReplacedFile(t *testing.T) {
	cmd := startCat(t)
	p, err := live.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	maps, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := elfx.New(bytes.NewReader(exe))
	if err != nil {
		t.Fatal(err)
	}
	id, err := img.BuildID()
	if err != nil {
		t.Fatalf("%s: %v", cmd.Path, err)
	}
	other := bytes.Replace(exe, id, bytes.Repeat([]byte{0xee}, len(id)), 1)
	for _, replacement := range [][]byte{other, []byte("no ELF file")} {
		opened := 0
		s := NewSet(p.Arch(), p, func(*target.Mapping) (target.File, error) {
			opened++
			return closer{bytes.NewReader(replacement)}, nil
		})
		s.Update(maps)
		i := slices.IndexFunc(s.All(), func(m *Module) bool { return m.Name == "cat" })
		if i < 0 {
			t.Fatalf("no module of the executable's: %v", maps)
		}
		got, err := s.All()[i].Image()
		if err != nil {
			t.Fatal(err)
		}
		if gotID, err := got.BuildID(); err != nil || !bytes.Equal(gotID, id) || opened == 0 {
			t.Errorf("build id %x, want %x: %v", gotID, id, err)
		}
		s.Close()
	}
}

// startCat starts cat, and waits until cat works: earlier the executable may not even be mapped.
func startCat(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := in.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

type closer struct{ *bytes.Reader }

func (closer) Close() error { return nil }

func checkVDSO(t *testing.T, m *Module) {
	t.Helper()
	for _, name := range []string{"__vdso_clock_gettime", "__vdso_gettimeofday"} {
		addr, err := m.Lookup(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sym, off, ok := m.Symbol(addr)
		if !ok || off != 0 || !strings.Contains(sym.Name, strings.TrimPrefix(name, "__vdso_")) {
			t.Errorf("%s at %v is %+v + %d, %v", name, addr, sym, off, ok)
		}
		if _, err := m.Step(addr); err != nil {
			t.Errorf("%s: no step: %v", name, err)
		}
	}
}

// TestOneFile: however often a file is mapped, the file is opened once, and closed with the last mapping.
func TestOneFile(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	img, err := elfx.New(f)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(img.Progs, func(p elfx.Prog) bool {
		return p.Type == ptLoad && p.Flags&elfx.FlagExecute != 0
	})
	file := &counted{File: f}
	s := NewSet(arch.AMD64, nothing{}, func(*target.Mapping) (target.File, error) {
		file.opened++
		return file, nil
	})
	const often = 100
	var maps target.Mappings
	for n := range arch.Addr(often) {
		start := 0x7f00_0000_0000 + n<<32
		maps = append(maps, mapping(start, start+0x1000, rx, exe, 1, img.Progs[i].Offset))
	}
	s.Update(maps)
	for _, m := range s.All() {
		if _, err := m.Image(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.All()); n != often || file.opened != 1 {
		t.Errorf("%d modules, of a file that was opened %d times", n, file.opened)
	}
	if s.Update(maps[:1]); file.closed != 0 {
		t.Error("the file is closed, and still mapped")
	}
	if s.Update(nil); file.closed != 1 {
		t.Errorf("the file was closed %d times", file.closed)
	}
}

// counted is a file that counts opens and closes.
type counted struct {
	*os.File
	opened, closed int
}

func (c *counted) Close() error {
	c.closed++
	return c.File.Close()
}

// TestAdjacent: mappings that lie side by side do not make the search for modules slower.
func TestAdjacent(t *testing.T) {
	var maps target.Mappings
	path := "/" + strings.Repeat("x", 4000)
	for n := range arch.Addr(60_000) {
		maps = append(maps, mapping(0x1000+n<<12, 0x2000+n<<12, rx, strings.Clone(path), 1, 0))
	}
	s := NewSet(arch.AMD64, nothing{}, nil)
	if took := testenv.Worked(func() { s.Update(maps) }); len(s.All()) != 1 || took > 5*time.Second { // took minutes
		t.Errorf("%d modules, after %v", len(s.All()), took)
	}
}
