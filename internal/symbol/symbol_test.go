package symbol

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/testenv"
)

const libc = "/lib/x86_64-linux-gnu/libc.so.6"

func open(tb testing.TB, path string) *elfx.Image {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	tb.Cleanup(func() { f.Close() })
	m, err := elfx.New(f)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// assembly has symbols of every kind that competes for an address.
const assembly = `
	.text
	.globl start
	.type start, @function
start:	.skip 16
	.size start, 16
	.skip 16			# belongs to nobody
	.type nosize, @function
nosize:	.skip 16			# up to the next symbol
	.globl _Z3fooILi3EEvPKc
	.type _Z3fooILi3EEvPKc, @function
	.weak weakalias
	.type weakalias, @function
	.type localalias, @function
weakalias:
localalias:
_Z3fooILi3EEvPKc:
	.skip 8
	.type inner, @function
inner:	.skip 8
	.size inner, 8
	.skip 16
	.size _Z3fooILi3EEvPKc, 32
	.size weakalias, 32
	.size localalias, 32
	.globl label			# no type
label:	.skip 16
nolabel: .skip 16			# local and without type: part of label
	.section .text2, "ax"
	.skip 32
	.section code, "ax"		# the linker makes __start_code and __stop_code
	.globl __start_code
	.long __start_code - .
	.skip 12
`

func TestLookup(t *testing.T) {
	gcc := testenv.CC(t)
	dir := t.TempDir()
	src, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.out")
	if err := os.WriteFile(src, []byte(assembly), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(gcc, "-nostdlib", "-Wl,-e,start", "-o", out, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	tab := New(open(t, out))
	sections := map[string]arch.Addr{}
	w, _ := elf.Open(out)
	defer w.Close()
	for _, s := range w.Sections {
		sections[s.Name] = arch.Addr(s.Addr)
	}
	base := sections[".text"]
	if f, _, ok := tab.Lookup(sections["code"] + 8); ok || sections["code"] == 0 {
		t.Errorf("what lies at the start of a section is called %+v", f)
	}
	for _, c := range []struct {
		at   arch.Addr
		want string
		off  uint64
	}{
		{0, "start", 0}, {15, "start", 15}, {16, "", 0}, {31, "", 0}, {32, "nosize", 0}, {47, "nosize", 15},
		{48, "void foo<3>(char const*)", 0}, {55, "void foo<3>(char const*)", 7}, {56, "inner", 0}, {63, "inner", 7},
		{64, "void foo<3>(char const*)", 16}, {79, "void foo<3>(char const*)", 31}, {80, "label", 0},
		{111, "label", 31}, {112, "", 0}, {^arch.Addr(0), "", 0},
	} {
		f, off, ok := tab.Lookup(base + c.at)
		if !ok {
			f = &Func{}
		}
		if f.Name != c.want || off != c.off {
			t.Errorf("+%v: %s+%d, want %s+%d", c.at, f.Name, off, c.want, c.off)
		}
	}
	if f, _, _ := tab.Lookup(base + 32); f == nil || f.Size != 16 {
		t.Errorf("what has no size is %+v", f)
	}
	if f, _, _ := tab.Lookup(base + 48); f == nil || f.Short != "foo" || f.Size != 32 || f.Start != base+48 {
		t.Errorf("%+v", f)
	}
	if err := tab.Err(); err != nil {
		t.Error(err)
	}
}

// TestStripped: in a stripped image a function symbol without a size covers only the start of the function.
func TestStripped(t *testing.T) {
	gcc := testenv.CC(t)
	dir := t.TempDir()
	src, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.so")
	const source = `
	.text
	.globl exported
	.type exported, @function
exported: .skip 16
internal: .skip 16
`
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(gcc, "-nostdlib", "-shared", "-s", "-o", out, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	img := open(t, out)
	tab := New(img)
	s, err := img.Lookup("exported")
	if err != nil {
		t.Fatal(err)
	}
	if f, off, ok := tab.Lookup(s.Value); !ok || f.Name != "exported" || off != 0 {
		t.Errorf("at its start: %+v+%d, %v", f, off, ok)
	}
	if f, _, ok := tab.Lookup(s.Value + 20); ok {
		t.Errorf("another function is called %s", f.Name)
	}
	if f, off, ok := tab.Before(s.Value + 16); !ok || f.Name != "exported" || off != 16 {
		t.Errorf("the one before it is %+v, %d bytes before, %v", f, off, ok)
	}
	if f, _, ok := tab.Before(s.Value - 1); ok {
		t.Errorf("before the first one is %+v", f)
	}
}

// TestLibc looks up the middle of every sized function of libc.
func TestLibc(t *testing.T) {
	tab := New(open(t, libc))
	w, err := elf.Open(libc)
	if err != nil {
		t.Skip("SKIPPED, NOT TESTED:", err)
	}
	defer w.Close()
	syms, _ := w.DynamicSymbols()
	names := map[arch.Addr][]string{}
	for _, s := range syms {
		names[arch.Addr(s.Value)] = append(names[arch.Addr(s.Value)], s.Name)
	}
	n := 0
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == 0 || s.Size == 0 {
			continue
		}
		n++
		f, off, ok := tab.Lookup(arch.Addr(s.Value + s.Size/2))
		if !ok || f.Start+arch.Addr(off) != arch.Addr(s.Value+s.Size/2) {
			t.Fatalf("%s: %+v, %v", s.Name, f, ok)
		}
		if f.Start == arch.Addr(s.Value) && !strings.Contains(strings.Join(names[f.Start], " "), f.Name) {
			t.Errorf("%s is called %s", s.Name, f.Name)
		}
	}
	if n < 1000 {
		t.Errorf("only %d functions", n)
	}
}

func TestDemangle(t *testing.T) {
	for _, c := range []struct{ raw, full, short string }{
		{"malloc", "malloc", "malloc"},
		{"memcpy@@GLIBC_2.14", "memcpy", "memcpy"},
		{"_ZN2ns1TIiE1fEPKc", "ns::T<int>::f(char const*)", "ns::T::f"},
		{"_ZN6Thread10DoApcsBaseEPFvPvES0_", "Thread::DoApcsBase(void (*)(void*), void*)", "Thread::DoApcsBase"},
		{"_Z1fv.cold", "f() [clone .cold]", "f"},
		{"_Znotmangled", "_Znotmangled", "_Znotmangled"},
		{"_Z", "_Z", "_Z"},
		{"", "", ""},
	} {
		if full, short := Demangle(c.raw); full != c.full || short != c.short {
			t.Errorf("%s: %q, %q, want %q, %q", c.raw, full, short, c.full, c.short)
		}
	}
}

// FuzzDemangle makes sure that a hostile name costs little.
func FuzzDemangle(f *testing.F) {
	f.Add("_ZN2ns1TIiE1fEPKc")
	f.Add("_RNvC6_123foo3bar")
	f.Add("_Z" + strings.Repeat("1aIS_", 50))
	f.Add("_ZN1aIS_" + strings.Repeat("Z", 90) + "flcv" + strings.Repeat("S_", 350) + strings.Repeat("ES_", 60))
	f.Fuzz(func(t *testing.T, raw string) {
		raw = raw[:min(len(raw), 4096)]
		var full, short string
		// The memory of the demangler grows with the square of the length.
		each := 500 + 20*min(len(raw), maxMangled)
		testenv.Allocates(t, len(raw), each, 1<<17, func() { full, short = Demangle(raw) })
		if len(full) > 1<<13 || len(short) > 1<<13 {
			t.Fatalf("%d and %d bytes", len(full), len(short))
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	home, _ := os.UserHomeDir()
	for _, path := range []string{libc, filepath.Join(home, ".cache/clrsnap-dotnet/net10/dotnet")} {
		b.Run(filepath.Base(path), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t := New(open(b, path)) // an image has memory for one table
				if err := t.Err(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(t.syms)), "symbols")
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	m := open(b, libc)
	s, err := m.Lookup("malloc")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("warm", func(b *testing.B) {
		t := New(m)
		for b.Loop() {
			if _, _, ok := t.Lookup(s.Value + 3); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run("first name", func(b *testing.B) {
		t := New(m)
		for b.Loop() {
			clear(t.names)
			if _, _, ok := t.Lookup(s.Value + 3); !ok {
				b.Fatal("not found")
			}
		}
	})
}
