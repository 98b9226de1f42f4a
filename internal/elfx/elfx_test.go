package elfx

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// libc is the C library of this machine's programs. The tests compare with libc
// because it has everything: users of both hash tables, a PLT, IFUNCs.
const libc = "/lib/x86_64-linux-gnu/libc.so.6"

func dotnet() string {
	return testenv.InKit("net10/dotnet")
}

// open opens an image.
func open(tb testing.TB, path string) (*Image, *os.File) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		layer.Lacking(tb, err.Error())
	}
	tb.Cleanup(func() { f.Close() })
	m, err := New(f)
	if err != nil {
		tb.Fatal(err)
	}
	return m, f
}

// build compiles a C program.
func build(tb testing.TB, source string, flags ...string) string {
	tb.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		tb.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	dir := tb.TempDir()
	src, out := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.out")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		tb.Fatal(err)
	}
	if b, err := exec.Command(gcc, append(flags, "-o", out, src)...).CombinedOutput(); err != nil {
		tb.Fatalf("gcc: %v\n%s", err, b)
	}
	return out
}

// loaded is a target.Memory with an image, mapped as a loader maps an image.
type loaded struct {
	base arch.Addr
	data []byte
}

func (l *loaded) ReadMemory(p []byte, addr arch.Addr) error {
	o := uint64(addr - l.base)
	if o > uint64(len(l.data)) || uint64(len(p)) > uint64(len(l.data))-o {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	copy(p, l.data[o:])
	return nil
}

func load(tb testing.TB, m *Image, f io.ReaderAt, base arch.Addr) *loaded {
	tb.Helper()
	l := &loaded{base: base}
	for _, p := range m.Progs {
		if p.Type != ptLoad {
			continue
		}
		if n := int(p.Vaddr) + int(p.Memsz); n > len(l.data) {
			l.data = append(l.data, make([]byte, n-len(l.data))...)
		}
		if _, err := f.ReadAt(l.data[p.Vaddr:][:p.Filesz], int64(p.Offset)); err != nil {
			tb.Fatal(err)
		}
	}
	return l
}

// TestAgainstDebugELF compares with the standard library's reader.
func TestAgainstDebugELF(t *testing.T) {
	for _, path := range []string{libc, "/lib64/ld-linux-x86-64.so.2", dotnet(),
		build(t, "int main(void){return 0;}")} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m, f := open(t, path)
			w, err := elf.NewFile(f)
			if err != nil {
				t.Fatal(err)
			}
			compareSections(t, m, w)
			compareSymbols(t, m, w)
			compareNote(t, m, w)
		})
	}
}

// contents reads a section whole.
func contents(t *testing.T, s *Section) []byte {
	t.Helper()
	b, err := s.Bytes(0, int(s.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func compareSections(t *testing.T, m *Image, w *elf.File) {
	for i, p := range w.Progs {
		if q := m.Progs[i]; q.Type != uint32(p.Type) || uint64(q.Vaddr) != p.Vaddr || q.Filesz != p.Filesz ||
			q.Memsz != p.Memsz || q.Offset != p.Off || q.Align != p.Align {
			t.Errorf("program header %d: %+v, want %+v", i, q, p)
		}
	}
	fr, err := m.Frames()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		got  *Section
	}{{".eh_frame_hdr", fr.Hdr}, {".eh_frame", fr.Frame}} {
		s := w.Section(c.name)
		want, err := s.Data()
		if err != nil || !bytes.Equal(contents(t, c.got), want) || uint64(c.got.Addr()) != s.Addr {
			t.Errorf("%s: %d bytes at %v, want %d at 0x%x", c.name, c.got.Size(), c.got.Addr(), len(want), s.Addr)
		}
	}
	for _, s := range w.Sections {
		want := s.Name == ".plt" || s.Name == ".plt.got" || s.Name == ".plt.sec" || s.Name == ".iplt"
		if s.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 || s.Type == elf.SHT_NOBITS {
			continue
		}
		for _, a := range []uint64{s.Addr, s.Addr + s.Size - 1} {
			if got := m.InPLT(arch.Addr(a)); got != want {
				t.Errorf("InPLT(0x%x) in %s = %v", a, s.Name, got)
			}
		}
	}
}

func compareSymbols(t *testing.T, m *Image, w *elf.File) {
	dyn, _ := w.DynamicSymbols()
	static, _ := w.Symbols()
	var want []string
	for _, s := range append(dyn[:len(dyn):len(dyn)], static...) {
		typ := elf.ST_TYPE(s.Info)
		label := typ == elf.STT_NOTYPE && elf.ST_BIND(s.Info) != elf.STB_LOCAL &&
			int(s.Section) < len(w.Sections) && w.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0
		if s.Section != elf.SHN_UNDEF && s.Section < elf.SHN_LORESERVE &&
			(typ == elf.STT_FUNC || typ == elf.STT_GNU_IFUNC || label) {
			want = append(want, fmt.Sprintf("%x %x %s", s.Value, s.Size, s.Name))
		}
	}
	var got []string
	if err := m.Functions(func(s *Symbol) bool {
		name, err := m.SymbolName(s)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%x %x %s", uint64(s.Value), s.Size, name))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("functions: %d, want %d", len(got), len(want))
	}
	for _, s := range dyn {
		if s.Section == elf.SHN_UNDEF {
			continue
		}
		g, err := m.Lookup(s.Name)
		if err != nil {
			t.Fatalf("Lookup(%s): %v", s.Name, err)
		}
		// Several versions of a name are all right.
		if name, _ := m.SymbolName(&g); name != s.Name {
			t.Fatalf("Lookup(%s) = %s", s.Name, name)
		}
	}
	for i := range 1000 {
		if _, err := m.Lookup(fmt.Sprint("no_such_symbol_", i)); !errors.Is(err, ErrNotFound) {
			t.Fatalf("Lookup of nothing: %v", err)
		}
	}
}

func compareNote(t *testing.T, m *Image, w *elf.File) {
	s := w.Section(".note.gnu.build-id")
	if s == nil {
		t.Skip("no build id")
	}
	want, _ := s.Data()
	if got, err := m.BuildID(); err != nil || !bytes.Equal(got, want[16:]) {
		t.Errorf("BuildID: %x, %v, want %x", got, err, want[16:])
	}
}

// TestMemory compares an image in memory with the same image in its file.
func TestMemory(t *testing.T) {
	exe := build(t, "int f(void){return 1;} int main(void){return f();}", "-rdynamic", "-Wl,--hash-style=sysv")
	for _, path := range []string{libc, dotnet(), exe} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m, f := open(t, path)
			const base = 0x7f0000000000
			mem, err := NewMemory(load(t, m, f, base), base)
			if err != nil {
				t.Fatal(err)
			}
			name := map[string]string{libc: "malloc", dotnet(): "DotNetRuntimeContractDescriptor", exe: "f"}[path]
			a, err1 := m.Lookup(name)
			b, err2 := mem.Lookup(name)
			if err1 != nil || err2 != nil || a != b {
				t.Errorf("Lookup: %+v (%v), in memory %+v (%v)", a, err1, b, err2)
			}
			fa, err1 := m.Frames()
			fb, err2 := mem.Frames()
			if err1 != nil || err2 != nil || fa.Frame.Addr() != fb.Frame.Addr() ||
				!bytes.HasPrefix(contents(t, fb.Frame), contents(t, fa.Frame)) ||
				!bytes.Equal(contents(t, fa.Hdr), contents(t, fb.Hdr)) {
				t.Errorf("Frames: %v, %v", err1, err2)
			}
			countA, countB := 0, 0
			_ = m.Functions(func(s *Symbol) bool {
				if s.table == tableDynamic && s.Type() != TypeNone {
					countA++
				}
				return true
			})
			_ = mem.Functions(func(*Symbol) bool { countB++; return true })
			if countA != countB || countA == 0 {
				t.Errorf("%d dynamic functions, in memory %d", countA, countB)
			}
		})
	}
}

// selfMemory is the memory of the test itself.
type selfMemory struct{ f *os.File }

func (s selfMemory) ReadMemory(p []byte, addr arch.Addr) error {
	if _, err := s.f.ReadAt(p, int64(addr)); err != nil {
		return &target.ReadError{Addr: addr, Len: len(p), Err: err}
	}
	return nil
}

func TestVDSO(t *testing.T) {
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Skip("SKIPPED, NOT TESTED:", err)
	}
	defer f.Close()
	maps, _ := os.ReadFile("/proc/self/maps")
	var lo, hi uint64
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			fmt.Sscanf(line, "%x-%x", &lo, &hi)
		}
	}
	if lo == 0 {
		t.Skip("SKIPPED, NOT TESTED: no vdso")
	}
	m, err := NewMemory(selfMemory{f}, arch.Addr(lo))
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Lookup("__vdso_clock_gettime")
	if err != nil || s.Value == 0 {
		t.Errorf("Lookup: %+v, %v", s, err)
	}
	if fr, err := m.Frames(); err != nil || fr.Hdr.Size() == 0 {
		t.Errorf("Frames: %v", err)
	}
	if b, err := m.Bias(arch.Addr(lo), 0); err != nil || b != m.bias {
		t.Errorf("Bias: %v, %v", b, err)
	}
	if id, err := m.BuildID(); err != nil {
		t.Errorf("BuildID: %x, %v", id, err)
	}
}

// TestBias runs a program that first maps itself as data, and then tells where
// its function and a function of libc are.
func TestBias(t *testing.T) {
	const source = `
#define _GNU_SOURCE
#include <stdio.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <dlfcn.h>
int here(void) { return 42; }
int main(void) {
	int fd = open("/proc/self/exe", O_RDONLY), c;
	mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	mmap(0, 8192, PROT_READ, MAP_PRIVATE, fd, 4096);
	printf("%p here\n%p getpid\n", (void *)here, dlsym(RTLD_DEFAULT, "getpid"));
	FILE *f = fopen("/proc/self/maps", "r");
	while ((c = getc(f)) != EOF) putchar(c);
}`
	for _, flags := range [][]string{
		{"-rdynamic"}, {"-rdynamic", "-no-pie"}, {"-rdynamic", "-Wl,-z,noseparate-code"},
		{"-rdynamic", "-Wl,-z,max-page-size=65536"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			exe := build(t, source, flags...)
			out, err := exec.Command(exe).Output()
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]arch.Addr{}
			found := 0
			sc := bufio.NewScanner(bytes.NewReader(out))
			for sc.Scan() {
				var a uint64
				var name, perm string
				var lo, hi, off uint64
				if n, _ := fmt.Sscanf(sc.Text(), "0x%x %s", &a, &name); n == 2 {
					want[name] = arch.Addr(a)
				}
				if n, _ := fmt.Sscanf(sc.Text(), "%x-%x %s %x", &lo, &hi, &perm, &off); n != 4 ||
					!strings.Contains(perm, "x") {
					continue
				}
				for name, path := range map[string]string{"here": exe, "getpid": libc} {
					if !strings.HasSuffix(sc.Text(), path) &&
						!(path == libc && strings.HasSuffix(sc.Text(), "/libc.so.6")) {
						continue
					}
					m, _ := open(t, path)
					bias, err := m.Bias(arch.Addr(lo), off)
					if err != nil {
						t.Fatal(err)
					}
					s, err := m.Lookup(name)
					if err != nil || s.Value+bias != want[name] {
						t.Errorf("%s: %v + %v, want %v (%v)", name, s.Value, bias, want[name], err)
					}
					found++
				}
			}
			if found != 2 {
				t.Errorf("%d of 2 images found in:\n%s", found, out)
			}
		})
	}
}

func TestReadMemory(t *testing.T) {
	m, _ := open(t, libc)
	var b [16]byte
	if err := m.ReadMemory(b[:4], 0); err != nil || string(b[:4]) != "\x7fELF" {
		t.Errorf("% x, %v", b, err)
	}
	for i := range m.Progs { // past the end of the bytes in the file
		p := &m.Progs[i]
		if p.Type != ptLoad || p.Filesz == p.Memsz {
			continue
		}
		err := m.ReadMemory(b[:], p.Vaddr+arch.Addr(p.Filesz)-8)
		if re := (*target.ReadError)(nil); !errors.As(err, &re) || !errors.Is(err, ErrUnbacked) {
			t.Errorf("reading .bss: %v", err)
		}
	}
	if err := m.ReadMemory(b[:], ^arch.Addr(0)-3); err == nil {
		t.Error("reading the end of the address space succeeds")
	}
}

func BenchmarkOpen(b *testing.B) {
	f, err := os.Open(dotnet())
	if err != nil {
		b.Skip("SKIPPED, NOT TESTED:", err)
	}
	defer f.Close()
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := New(f); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("open+descriptor", func(b *testing.B) {
		for b.Loop() {
			m, _ := New(f)
			if _, err := m.Lookup("DotNetRuntimeContractDescriptor"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("open+frames", func(b *testing.B) {
		for b.Loop() {
			m, _ := New(f)
			if _, err := m.Frames(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
