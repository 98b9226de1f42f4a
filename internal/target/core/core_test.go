package core

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// TestParked compares dumps of a C program with the program itself: memory, mappings, registers,
// arguments.
func TestParked(t *testing.T) {
	layer.Live(t)
	long := strings.Repeat("a long argument ", 20)
	for _, writer := range []string{"gcore", "kernel"} {
		t.Run(writer, func(t *testing.T) {
			p := startParked(t, buildParked(t), "wait", long, "ümlaut")
			where := waits(t, p.pid)
			live := memoryOf(t, p.pid, func(*target.Mapping) bool { return true })
			maps := liveMaps(t, p.pid)
			var path string
			if writer == "gcore" {
				path = testenv.GCoreDump(t, p.pid)
			} else {
				path = testenv.KernelDump(t, p.pid, p.ended)
			}
			c := openCore(t, path, Options{})
			if c.Writer() != writer || c.PID() != p.pid {
				t.Errorf("of process %d by %q, want %d by %q", c.PID(), c.Writer(), p.pid, writer)
			}
			if exe, err := c.Executable(); exe != p.exe || err != nil {
				t.Errorf("program %q (%v), want %q", exe, err, p.exe)
			}
			if want := strings.Join([]string{p.exe, "wait", long, "ümlaut"}, " "); c.Command() != want {
				t.Errorf("command line %q, want %q", c.Command(), want)
			}
			checkWaits(t, c, where)
			n := compareMemory(t, c, live, false)
			t.Logf("%+v", n)
			if n.dumped == 0 || n.filed == 0 {
				t.Errorf("pages: %+v", n)
			}
			checkMappings(t, c, maps)
		})
	}
}

// wait is a thread's wait, from /proc.
type wait struct {
	syscall int64
	sp, ip  arch.Addr
}

// waits returns the waits of all threads of a parked program, once all of them wait.
func waits(t *testing.T, pid int) map[int]wait {
	t.Helper()
	for {
		out := map[int]wait{}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("no threads: %v", err)
		}
		for _, task := range tasks {
			text, err := os.ReadFile(task + "/syscall")
			if err != nil {
				t.Fatal(err)
			}
			if f := strings.Fields(string(text)); f[0] == strconv.Itoa(unix.SYS_PAUSE) {
				var tid int
				var w wait
				text := filepath.Base(task) + " " + f[0] + " " + f[len(f)-2] + " " + f[len(f)-1]
				if _, err := fmt.Sscan(text, &tid, &w.syscall, &w.sp, &w.ip); err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				out[tid] = w
			}
		}
		if len(out) == len(tasks) {
			return out
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func checkWaits(t *testing.T, c *Core, want map[int]wait) {
	t.Helper()
	if len(c.Threads()) != len(want) {
		t.Errorf("%d threads, want %d", len(c.Threads()), len(want))
	}
	for _, th := range c.Threads() {
		w, ok := want[th.TID]
		sp, valid := th.Context.Reg(arch.RSP)
		if !ok || !valid || th.Context.IP != w.ip || arch.Addr(sp) != w.sp || th.Syscall != w.syscall ||
			th.Context.Valid.Len() != 16 {
			t.Errorf("thread %d: %+v, want %+v", th.TID, th, w)
		}
	}
}

// checkMappings requires the process's executable mappings of files. No mapping may have more
// permissions than in the process.
func checkMappings(t *testing.T, c *Core, want target.Mappings) {
	t.Helper()
	got, err := c.Mappings()
	if err != nil || !got.Sorted() {
		t.Fatalf("%v, sorted %v", err, got.Sorted())
	}
	code := 0
	for _, w := range want {
		if w.Perm&target.PermExec == 0 || w.Path == "" {
			continue
		}
		code++
		g := got.Find(w.Start)
		if g == nil || g.Start != w.Start || g.End != w.End || g.Offset != w.Offset || g.Path != w.Path ||
			g.Perm != w.Perm {
			t.Errorf("mapping %+v, want %+v", g, w)
		}
	}
	if code < 3 {
		t.Errorf("the process has %d pieces of code", code)
	}
	for i := range got {
		if w := want.Find(got[i].Start); w == nil || got[i].Perm&^w.Perm&target.PermExec != 0 {
			t.Errorf("mapping %+v was %+v", got[i], w)
		}
	}
}

// TestDotNet compares dumps of a .NET program with the program. If the program survives the dump,
// the test stops the program for the comparison. If the dump kills the program, the test compares
// only the bytes that do not come from the dump.
func TestDotNet(t *testing.T) {
	testenv.EachOf(t, testenv.Versions(), func(t *testing.T, runtime string) {
		for _, kind := range testenv.DumpKinds {
			if kind.Runs(runtime) {
				t.Run(string(kind), func(t *testing.T) { testDotNet(t, runtime, kind) })
			}
		}
	})
}

func testDotNet(t *testing.T, runtime string, kind testenv.DumpKind) {
	app := testenv.Start(t, "idle",
		testenv.DumpOptions(t, kind,
			testenv.Options{Runtime: runtime, Args: []string{"--threads", "2", "--pool", "1"}}))
	var live *liveMemory
	if kind.Kills() {
		live = memoryOf(t, app.PID, func(m *target.Mapping) bool {
			return m.Path != "" && m.Perm&target.PermWrite == 0
		})
	} else {
		live = memoryOf(t, app.PID, nil)
		if err := unix.Kill(app.PID, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	c := openCore(t, testenv.Dump(t, app, kind), Options{})
	n := compareMemory(t, c, live, kind.Kills())
	t.Logf("%+v; %q", n, c.Missing(""))
	if n.dumped == 0 || n.filed == 0 && !strings.HasSuffix(string(kind), "full") {
		t.Errorf("pages: %+v", n)
	}
	if !strings.Contains(c.Command(), "idle.dll") && kind != testenv.DumpTriage {
		t.Errorf("command line %q", c.Command())
	}
	checkFilesFound(t, c)
	if !kind.Kills() {
		if err := unix.Kill(app.PID, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}

// checkFilesFound requires that code and metadata of every library can be read.
func checkFilesFound(t *testing.T, c *Core) {
	t.Helper()
	var code, assemblies int
	for _, im := range c.images {
		ext := filepath.Ext(im.path)
		if err := im.load(); err != nil {
			if ext == ".so" || ext == ".dll" {
				t.Errorf("%s %v", im.path, err)
			}
			continue
		}
		if im.elf != nil {
			code++
		} else if im.pe != nil {
			assemblies++
		}
	}
	if code < 5 {
		t.Errorf("%d native images", code)
	}
	t.Logf("%d native images, %d assemblies", code, assemblies)
}

func TestSignals(t *testing.T) {
	layer.Live(t)
	exe := buildParked(t)
	for _, tt := range []struct{ how, want string }{
		{"segv", "SIGSEGV address not mapped 0x1234 true"},
		{"wild", "SIGSEGV the address is not canonical, or the access is never allowed 0x0 false"},
		{"divide", "SIGFPE integer division by zero IP true"},
		{"abort", "SIGABRT sent by the process itself 0x0 false"},
		{"wait", "SIGSYS sent by process PARENT 0x0 false"},
	} {
		t.Run(tt.how, func(t *testing.T) {
			p := startParked(t, exe, tt.how)
			var path string
			if tt.how == "wait" {
				path = testenv.KernelDump(t, p.pid, p.ended)
			} else {
				<-p.ended
				path = testenv.KernelDumpIn(t, p.dir)
			}
			c := openCore(t, path, Options{})
			s := c.Signal()
			if s == nil {
				t.Fatal("no signal")
			}
			i := slices.IndexFunc(c.Threads(), func(th Thread) bool { return th.TID == c.Crashed() })
			if i < 0 || tt.how != "wait" && c.Crashed() == p.pid {
				t.Fatalf("thread %d is said to have crashed", c.Crashed())
			}
			ip := c.Threads()[i].Context.IP
			want := strings.NewReplacer("IP", ip.String(), "PARENT", fmt.Sprint(os.Getpid())).Replace(tt.want)
			if got := fmt.Sprintf("%s %s %v %v", s.Name, s.Reason, s.Address, s.HasAddress); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestFiles: which file is used, and the reports about other files.
func TestFiles(t *testing.T) {
	exe := buildParked(t)
	other := buildParked(t, "-O2", "-DOTHER")
	bare := buildParked(t, "-Wl,--build-id=none")
	p := startParked(t, exe)
	path := testenv.GCoreDump(t, p.pid)
	at := entryAt(t, liveMaps(t, p.pid), exe)
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(exe, moved); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 32)
	if !livePage(p.pid, at, want) {
		t.Fatal("cannot read the function")
	}
	root := t.TempDir()
	for _, dir := range []string{filepath.Dir(exe), "/elsewhere"} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, moved, root+"/elsewhere/parked")
	if err := os.Symlink("/elsewhere/parked", root+exe); err != nil { // as in containers
		t.Fatal(err)
	}
	empty := t.TempDir()

	for _, tt := range []struct {
		name    string
		o       Options
		missing string // empty: the file is read
	}{
		{"removed", Options{}, exe + " cannot be read: no such file or directory (--exe names this file, " +
			"--sysroot the folder with the process's files)"},
		{"exe", Options{Exe: moved}, ""},
		{"exe of another build", Options{Exe: other},
			exe + " is to be read from " + other + ", which is another file: with build id "},
		{"exe without build id", Options{Exe: bare},
			exe + " is to be read from " + bare +
				", which is another file: without a build id, and the dump has build id "},
		{"exe that is no program", Options{Exe: path}, exe + " is to be read from " + path + ", which is another file"},
		{"sysroot", Options{Sysroot: root}, ""},
		{"empty sysroot", Options{Sysroot: empty}, exe + " is not below " + empty + ": no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := openCore(t, path, tt.o)
			got := make([]byte, len(want))
			err := c.ReadMemory(got, at)
			m, merr := c.Mappings()
			if merr != nil {
				t.Fatal(merr)
			}
			f, ferr := c.OpenMapping(m.Find(at))
			if tt.missing == "" {
				if err != nil || !bytes.Equal(got, want) || ferr != nil {
					t.Errorf("% x (%v), want % x; file: %v", got, err, want, ferr)
				} else {
					f.Close()
				}
				return
			}
			if err == nil || ferr == nil {
				t.Fatalf("% x was read from a file that must not be believed (%v)", got, ferr)
			}
			if missing := c.Missing(""); len(missing) != 1 || !strings.HasPrefix(missing[0], tt.missing) {
				t.Errorf("missing: %q, want %q", missing, tt.missing)
			}
		})
	}
	none := filepath.Join(empty, "none")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec parked\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const refused = ", but the program's file cannot be this file: "
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Sysroot: none},
			"the process's files cannot be looked for below " + none + ": no such file or directory"},
		{Options{Exe: none}, "--exe names " + none + refused + "no such file or directory"},
		{Options{Exe: empty}, "--exe names " + empty + refused + "not a regular file"},
		{Options{Exe: script}, "--exe names " + script + refused + "not a 64-bit"},
	} {
		if _, err := Open(path, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.o, err, tt.want)
		}
	}
}

// TestMemoryOnly: shared memory of .NET processes is not read from its file, which changes along
// with the processes.
func TestMemoryOnly(t *testing.T) {
	for path, want := range map[string]bool{
		"/tmp/.dotnet/shm/session7/orders": true, "/memfd:doublemapper": true, "/dev/shm/orders": true,
		"/home/u/.dotnet/shared/Microsoft.NETCore.App/10.0.9/System.Linq.dll": false, "/tmp/shm/orders": false,
	} {
		if isMemoryOnly(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

// entryAt returns the address of a program's entry point.
func entryAt(t *testing.T, maps target.Mappings, exe string) arch.Addr {
	t.Helper()
	f, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := elfx.New(f)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(maps, func(m target.Mapping) bool { return m.Path == exe && m.Perm&target.PermExec != 0 })
	b, err := img.Bias(maps[i].Start, maps[i].Offset)
	if err != nil {
		t.Fatal(err)
	}
	return img.Entry + b
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
