package livetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// Compile compiles the library of the program "inmemory", as a file in dir, and returns its path. The
// library has DWARF, and nothing was stripped.
func Compile(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	source, err := filepath.Abs("../../testdata/apps/inmemory/shop.c")
	if err != nil {
		tb.Fatal(err)
	}
	out := filepath.Join(dir, "libshop.so")
	RunTool(tb, testenv.CC(tb), append([]string{
		"-g", "-O1", "-fno-optimize-sibling-calls", "-shared", "-fPIC", "-o", out, source,
		"-fdebug-prefix-map=" + filepath.Dir(source) + "=/testdata/apps/inmemory",
	}, args...)...)
	return out
}

// RunTool runs a tool of the C compiler, and skips the test without it.
func RunTool(tb testing.TB, name string, args ...string) {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Skip("SKIPPED, NOTHING WAS TESTED: there is no " + name)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// Strip moves the dispensable parts of a library into another file, in the same folder, and returns
// its path.
func Strip(tb testing.TB, library string) string {
	tb.Helper()
	debug := filepath.Join(filepath.Dir(library), "libshop.debug")
	RunTool(tb, "objcopy", "--only-keep-debug", library, debug)
	RunTool(tb, "objcopy", "--strip-all", "--add-gnu-debuglink="+debug, library)
	return debug
}

// NativeFunctions are the functions of the library around the blocked thread of "inmemory", leaf
// first.
var NativeFunctions = []string{"shop_pause", "shop_shelf", "shop_wait"}

// NativeLines are the lines of NativeFunctions.
func NativeLines(tb testing.TB) map[string]int {
	tb.Helper()
	text, err := os.ReadFile("../../testdata/apps/inmemory/shop.c")
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]int{}
	for i, line := range strings.Split(string(text), "\n") {
		if _, name, ok := strings.Cut(line, "// line: "); ok {
			out[name] = i + 1
		}
	}
	return out
}

// InNative takes stacks until a thread is in the library, and returns the frames there, leaf first.
func InNative(tb testing.TB, p *clrsnap.Process) (frames []snapshot.Frame) {
	tb.Helper()
	for begin := time.Now(); time.Since(begin) < Hang; time.Sleep(20 * time.Millisecond) {
		s, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			tb.Fatal(err)
		}
		for _, th := range s.Threads {
			for _, f := range th.Frames {
				if f.Module == "libshop.so" {
					frames = append(frames, f)
				}
			}
		}
		if len(frames) == len(NativeFunctions) {
			return frames
		}
		frames = nil
	}
	tb.Fatal("no thread is in the library")
	return nil
}

// CheckNative requires the names of NativeFunctions and, if lines says so, their lines; else no lines.
func CheckNative(tb testing.TB, frames []snapshot.Frame, lines bool) {
	tb.Helper()
	want := NativeLines(tb)
	for i, f := range frames {
		name := NativeFunctions[i]
		if f.Method != name {
			tb.Errorf("frame %d is %q (%s), want %s", i, f.Method, f.Display, name)
		}
		at := snapshot.SourceLine{}
		if f.Line != nil {
			at = *f.Line
		}
		expected := snapshot.SourceLine{}
		if lines {
			expected = snapshot.SourceLine{File: "/testdata/apps/inmemory/shop.c", Line: want[name], Column: at.Column}
		}
		if at != expected {
			tb.Errorf("%s is at %+v, want %+v", name, at, expected)
		}
	}
}
