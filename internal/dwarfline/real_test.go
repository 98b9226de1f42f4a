package dwarfline

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
)

// open opens the line table of a file.
func open(t testing.TB, file string) *Table {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	image, err := elfx.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return New(func(name string) (io.ReaderAt, int64, error) { return image.DebugSection(name, 1<<30) }, image.Reserve)
}

// compare compares the lines of every stepth byte of code with the lines of Go's
// reader. Names relative to dir may be relative in Go's answer.
func compare(t *testing.T, file, dir string, step uint64) (lines int) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	table := open(t, file)
	units := d.Reader()
	for {
		unit, err := units.Next()
		if err != nil {
			t.Fatal(err)
		}
		if unit == nil {
			return lines
		}
		units.SkipChildren()
		ranges, err := d.Ranges(unit)
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.LineReader(unit)
		if err != nil {
			t.Fatal(err)
		}
		if r == nil {
			continue
		}
		lines += compareRows(t, table, r, ranges, dir, step)
	}
}

// compareRows compares the addresses between the rows of a unit.
func compareRows(
	t *testing.T, table *Table, r *dwarf.LineReader, ranges [][2]uint64, dir string, step uint64,
) (lines int) {
	t.Helper()
	covered := func(a uint64) bool {
		for _, r := range ranges {
			if a >= r[0] && a < r[1] {
				return true
			}
		}
		return false
	}
	var before, now dwarf.LineEntry
	have := false
	for {
		if err := r.Next(&now); err == io.EOF {
			return lines
		} else if err != nil {
			t.Fatal(err)
		}
		if have && !before.EndSequence && before.Address < now.Address && covered(before.Address) {
			for a := before.Address; a < now.Address; a += step {
				got, err := table.Lookup(arch.Addr(a))
				if before.Line == 0 {
					if !errors.Is(err, ErrNone) {
						t.Errorf("%#x: %+v, %v, want none", a, got, err)
					}
					continue
				}
				want := Line{before.File.Name, before.Line, before.Column}
				if !filepath.IsAbs(want.File) {
					want.File = filepath.Join(dir, want.File)
				}
				if err != nil || got != want {
					t.Fatalf("%#x: %+v, %v, want %+v", a, got, err, want)
				}
				lines++
			}
		}
		before, have = now, true
	}
}

// sources are a program of two files in two folders; the first includes the other.
var sources = map[string]string{
	"src/main.c": "#include \"../include/inner.h\"\nint outer(int x) {\n" +
		"\tif (x > 3)\n\t\treturn inner(x);\n\treturn x;\n}\n",
	"include/inner.h": "#include <stdlib.h>\nstatic inline int inner(int x) {\n" +
		"\tfor (int i = 0; i < x; i++)\n\t\tx ^= rand();\n\treturn x;\n}\n",
	"src/other.c": "int other(int x) { return x * 3; }\nint unused(int x) { return x; }\n",
}

// TestCompilers: for the output of C compilers, in each version of DWARF, Go's reader finds the same lines.
func TestCompilers(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED: there is no C compiler")
	}
	dir := t.TempDir()
	for name, text := range sources {
		file := filepath.Join(dir, name)
		_ = os.MkdirAll(filepath.Dir(file), 0o755)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mapped := "-fdebug-prefix-map=" + dir + "=/build"
	for _, version := range []int{2, 3, 4, 5} {
		for _, more := range []string{
			"-O0", "-O2 -ffunction-sections -Wl,--gc-sections -Wl,-u,other", "-gz=zlib", "-gz=zlib-gnu", mapped,
			"-gdwarf64"} {
			if version == 2 && more == "-gdwarf64" {
				continue // of version 3 and later
			}
			t.Run(fmt.Sprint(version, strings.ReplaceAll(more, dir, "")), func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "lib.so")
				args := append([]string{"-shared", "-fPIC", fmt.Sprintf("-gdwarf-%d", version), "-o", out},
					strings.Fields(more)...)
				cmd := exec.Command(cc, append(args, "src/main.c", "src/other.c")...)
				cmd.Dir = dir
				if text, err := cmd.CombinedOutput(); err != nil {
					t.Skipf("SKIPPED: %v\n%s", err, text) // an old compiler
				}
				base := dir
				if more == mapped {
					base = "/build"
				}
				if n := compare(t, out, base, 1); n < 50 {
					t.Errorf("only %d addresses have a line", n)
				}
				if _, err := open(t, out).Lookup(1); !errors.Is(err, ErrNone) {
					t.Errorf("the ELF header has a line: %v", err)
				}
			})
		}
	}
}

// TestGo: the same comparison for a larger program: Go writes version 5, compressed.
func TestGo(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", exe, "cmd/gofmt")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	begin := time.Now()
	table := open(t, exe)
	_, _ = table.Lookup(1)
	t.Logf("%d bytes were indexed in %v: %d starts", table.size, time.Since(begin), len(table.starts))
	if n := compare(t, exe, "", 97); n < 1000 { // within the bounds of lookups
		t.Errorf("only %d addresses have a line", n)
	}
}

// BenchmarkIndex measures how long a line table takes to read, for a megabyte.
func BenchmarkIndex(b *testing.B) {
	exe := filepath.Join(b.TempDir(), "program")
	if text, err := exec.Command("go", "build", "-o", exe, "cmd/gofmt").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	for b.Loop() {
		table := open(b, exe)
		_, _ = table.Lookup(1)
		b.SetBytes(table.size)
	}
}
