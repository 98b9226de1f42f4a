package matrix

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"clrsnap"
	"clrsnap/internal/elfx"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// inLibrary starts a program that blocks in a library.
func inLibrary(t *testing.T, library string, prepare func(*exec.Cmd)) *testenv.App {
	t.Helper()
	return testenv.Start(t, "inmemory", testenv.Options{Args: []string{"--library", library}, Prepare: prepare})
}

// TestNativeDumps: in every kind of dump a thread in a native library has the stack of the live process. createdump
// writes a small library in one piece, as data.
func TestNativeDumps(t *testing.T) { testenv.EachVersion(t, testNativeDumps) }

func testNativeDumps(t *testing.T, runtime string) {
	library := livetest.Compile(t, t.TempDir())
	for _, k := range testenv.DumpKinds {
		if !k.Runs(runtime) || k.Kills() {
			continue
		}
		a := testenv.Start(t, "inmemory", testenv.DumpOptions(t, k, testenv.Options{
			Runtime: runtime, Args: []string{"--library", library},
		}))
		livetest.InNative(t, livetest.Open(t, a, clrsnap.Options{})) // the library is loaded now
		o := clrsnap.CoreOptions{Options: clrsnap.Options{Lines: true}}
		snap := livetest.SnapshotCore(t, testenv.Dump(t, a, k), o)
		var frames []snapshot.Frame
		for _, th := range snap.Threads {
			of := slices.DeleteFunc(slices.Clone(th.Frames), func(f snapshot.Frame) bool {
				return f.Module != filepath.Base(library)
			})
			if len(of) > 0 && !th.Complete {
				t.Errorf("%s: incomplete: %s\n%s", k, th.Error, livetest.Text(th.Frames))
			}
			frames = append(frames, of...)
		}
		if len(frames) != len(livetest.NativeFunctions) {
			t.Errorf("%s: %d frames in the library, want %d", k, len(frames), len(livetest.NativeFunctions))
			continue
		}
		livetest.CheckNative(t, frames, true)
		livetest.EndsWell(t, a)
	}
}

// onlyExported requires the names in the library itself, and no line.
func onlyExported(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	for i, f := range livetest.InNative(t, p) {
		want := ""
		if livetest.NativeFunctions[i] == "shop_wait" {
			want = "shop_wait"
		}
		if f.Method != want || f.Line != nil {
			t.Errorf("%s is called %q, at %+v", livetest.NativeFunctions[i], f.Method, f.Line)
		}
	}
}

// TestNativeLines: functions of a native library have the lines of DWARF, in each version of DWARF.
func TestNativeLines(t *testing.T) {
	for _, args := range [][]string{
		{"-gdwarf-4"}, {"-gdwarf-5"}, {"-gdwarf-5", "-gz=zlib"}, {"-gdwarf-3", "-gz=zlib-gnu"},
	} {
		a := inLibrary(t, livetest.Compile(t, t.TempDir(), args...), nil)
		livetest.CheckNative(t, livetest.InNative(t, livetest.Open(t, a, clrsnap.Options{Lines: true})), true)
		livetest.CheckNative(t, livetest.InNative(t, livetest.Open(t, a, clrsnap.Options{})), false)
		livetest.EndsWell(t, a)
	}
}

// TestDebugFiles: the debug file of a stripped library is found where distributions and users put debug files, in the
// mount namespace of the program, and only if the file is of the same build.
func TestDebugFiles(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	library := livetest.Compile(t, dir, "-Wl,--build-id")
	debug := livetest.Strip(t, library)
	id := buildIDOf(t, library)
	other := livetest.Strip(t, livetest.Compile(t, t.TempDir(), "-Wl,--build-id", "-O2"))
	move := func(t *testing.T, from string, to ...string) {
		t.Helper()
		name := filepath.Join(to...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	below := filepath.Join(".build-id", id[:2], id[2:]+".debug")
	folder := t.TempDir()
	for _, c := range []struct {
		name string
		put  func(t *testing.T, from, beside, system string)
		o    clrsnap.Options
	}{
		{"linked, beside", func(t *testing.T, from, beside, _ string) { move(t, from, beside, "libshop.debug") },
			clrsnap.Options{}},
		{"linked, in .debug",
			func(t *testing.T, from, beside, _ string) { move(t, from, beside, ".debug/libshop.debug") },
			clrsnap.Options{}},
		{"named as .NET does", func(t *testing.T, from, beside, _ string) { move(t, from, beside, "libshop.so.dbg") },
			clrsnap.Options{}},
		{"by build id", func(t *testing.T, from, _, system string) { move(t, from, system, below) }, clrsnap.Options{}},
		{"linked, in the system's folder", func(t *testing.T, from, beside, system string) {
			move(t, from, system, beside, "libshop.debug")
		}, clrsnap.Options{}},
		{"in a folder", func(t *testing.T, from, _, _ string) { move(t, from, folder, below) },
			clrsnap.Options{Symbols: []string{folder}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, from := range []string{debug, other} {
				place, system := publicDir(t), publicDir(t)
				move(t, library, place, "libshop.so")
				c.put(t, from, place, system)
				// Only the program has its own /usr/lib/debug.
				const script = "set -e\nmount --make-rprivate /\nmkdir -p /usr/lib/debug\n" +
					"mount --bind \"$1\" /usr/lib/debug\nshift\nexec \"$@\""
				a := inLibrary(t, filepath.Join(place, "libshop.so"), func(cmd *exec.Cmd) {
					cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
					inShell(cmd, script, system)
				})
				o := c.o
				o.Lines = true
				p := livetest.Open(t, a, o)
				if from == debug {
					livetest.CheckNative(t, livetest.InNative(t, p), true)
				} else {
					onlyExported(t, p)
				}
				livetest.EndsWell(t, a)
			}
		})
	}
}

// TestDebugLinkChecksum: without a build id the checksum decides.
func TestDebugLinkChecksum(t *testing.T) {
	dir := t.TempDir()
	library := livetest.Compile(t, dir, "-Wl,--build-id=none")
	debug := livetest.Strip(t, library)
	a := inLibrary(t, library, nil)
	livetest.CheckNative(t, livetest.InNative(t, livetest.Open(t, a, clrsnap.Options{Lines: true})), true)
	b, err := os.ReadFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1 // of the section headers
	if err := os.WriteFile(debug, b, 0o644); err != nil {
		t.Fatal(err)
	}
	onlyExported(t, livetest.Open(t, a, clrsnap.Options{Lines: true}))
	livetest.EndsWell(t, a)
}

func buildIDOf(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := elfx.New(f)
	if err != nil {
		t.Fatal(err)
	}
	id, err := image.BuildID()
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(id)
}
