package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/cgroup"
	"clrsnap/internal/diagnostics"
	"clrsnap/internal/locate"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

// TestAttach: the agent connects, and can be attached again at once after the reader has hung up.
// Nothing is left in the file system, and the program is not disturbed.
func TestAttach(t *testing.T) {
	layer.Each(t)
	lib := library(t)
	testenv.EachOf(t, testenv.Versions(), func(t *testing.T, rt string) {
		app, tmp := startIn(t, testenv.Options{Runtime: rt})
		for range 3 {
			c := goodAttach(t, app.PID, lib)
			if file := mapped(t, app.PID); !strings.HasPrefix(file, tmp+"/") || !strings.HasSuffix(file, "(deleted)") {
				t.Errorf("%q is mapped", file)
			}
			left(t, tmp)
			badAttach(t, app.PID, lib, ErrOtherProfiler, "another clrsnap")
			left(t, tmp)
			c.Close()
		}
		endsWell(t, app)
	})
}

// TestOtherProfiler: an existing profiler is left alone, and named if it was loaded at the start.
func TestOtherProfiler(t *testing.T) {
	layer.Live(t)
	lib := library(t)
	file := otherProfilerFile(t)
	socket := filepath.Join(publicDir(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begun := make(chan error)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, err = tell(&Agent{Conn: c.(*net.UnixConn)})
			begun <- err
		}
	}()
	t.Run("started", func(t *testing.T) {
		app, tmp := startIn(t,
			testenv.Options{Env: []string{"CORECLR_ENABLE_PROFILING=1", "CORECLR_PROFILER=" + otherCLSID.String(),
				"CORECLR_PROFILER_PATH=" + file, "CLRSNAP_AGENT_SOCKET=" + socket}})
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		for range 2 {
			badAttach(t, app.PID, lib, ErrOtherProfiler, file, "without the other profiler")
		}
		left(t, tmp)
		endsWell(t, app)
	})
	t.Run("attached", func(t *testing.T) {
		app, tmp := startIn(t, testenv.Options{})
		other := diagnostics.Profiler{CLSID: otherCLSID, Library: file, Data: []byte(socket)}
		if err := diagnostics.Attach(t.Context(), dirOf(t, app.PID), other); err != nil {
			t.Fatal(err)
		}
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		badAttach(t, app.PID, lib, ErrOtherProfiler, "room for a single profiler")
		left(t, tmp)
		endsWell(t, app)
	})
}

// otherCLSID is the class of a profiler other than the agent.
var otherCLSID = diagnostics.GUID{A: 0x11223344, B: agent.CLSID.B, C: agent.CLSID.C, D: agent.CLSID.D}

// otherProfilerFile builds another profiler: the agent, under other names.
func otherProfilerFile(t *testing.T) string {
	t.Helper()
	dir := publicDir(t)
	if err := os.CopyFS(dir, os.DirFS("../../agent")); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{"entry.c": {"0x5d0c6a1e", "0x11223344"},
		"session.c": {`"clrsnap-agent"`, `"other"`}} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte(change[0])) {
			t.Fatalf("%s does not contain %s", name, change[0])
		}
		text = bytes.ReplaceAll(text, []byte(change[0]), []byte(change[1]))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "other.so")
	if err := agent.Build(testenv.CC(t), dir, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestDiagnosticsOff: the settings that prevent attaching, and a setting that does not although
// its name suggests it (.NET 9 and 10).
func TestDiagnosticsOff(t *testing.T) {
	layer.Live(t)
	lib := library(t)
	for _, setting := range []string{"DOTNET_EnableDiagnostics=0", "DOTNET_EnableDiagnostics_IPC=0",
		"COMPlus_EnableDiagnostics=0"} {
		t.Run(setting, func(t *testing.T) {
			app, tmp := startIn(t, testenv.Options{Env: []string{setting}})
			badAttach(t, app.PID, lib, ErrDiagnosticsOff, setting, "start the program without")
			left(t, tmp)
			endsWell(t, app)
		})
	}
	t.Run("profiler", func(t *testing.T) {
		app, _ := startIn(t, testenv.Options{Env: []string{"DOTNET_EnableDiagnostics_Profiler=0"}})
		goodAttach(t, app.PID, lib)
		endsWell(t, app)
	})
}

// TestSocketRemoved: the runtime listens, but its socket's file was removed.
func TestSocketRemoved(t *testing.T) {
	app, tmp := startIn(t, testenv.Options{})
	sockets, err := filepath.Glob(tmp + "/dotnet-diagnostic-*")
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	badAttach(t, app.PID, library(t), ErrNoConnection, sockets[0], "has been removed", "start the program again")
	endsWell(t, app)
}

// TestTooEarly: a runtime that waits for a tool's permission to start.
func TestTooEarly(t *testing.T) {
	tmp := publicDir(t)
	app := testenv.Start(t, "idle",
		testenv.Options{NoReady: true, Env: []string{"TMPDIR=" + tmp, "DOTNET_DefaultDiagnosticPortSuspend=1"}})
	waitListening(t, app.PID, tmp+"/dotnet-diagnostic-")
	badAttach(t, app.PID, library(t), ErrTooEarly, "try again")
	left(t, tmp)
}

// waitListening waits until a socket with a path beginning with prefix takes connections: its
// file exists a little earlier.
func waitListening(t *testing.T, pid int, prefix string) {
	t.Helper()
	const listening = " 00010000 " // the flags, __SO_ACCEPTCON
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
		sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(sockets)) {
			if strings.Contains(line, " "+prefix) && strings.Contains(line, listening) {
				return
			}
		}
	}
	t.Fatalf("nobody listens at %s*", prefix)
}

// TestNoRuntime: missing processes, and processes without .NET.
func TestNoRuntime(t *testing.T) {
	lib := library(t)
	badAttach(t, 1<<22+1, lib, live.ErrNoProcess)
	tmp := publicDir(t)
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{"TMPDIR=" + tmp}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	badAttach(t, cmd.Process.Pid, lib, locate.ErrNotDotNet, "clrsnap ps")
	left(t, tmp)
}

// TestNotLoaded: the runtime cannot load the given library.
func TestNotLoaded(t *testing.T) {
	app, tmp := startIn(t, testenv.Options{})
	badAttach(t, app.PID, []byte("no library"), ErrNotLoaded, "audit log")
	left(t, tmp)
	endsWell(t, app)
}

// TestHangUp: an agent that is hung up on before its first request does not stay, and leaves room
// for the next agent.
func TestHangUp(t *testing.T) {
	lib := library(t)
	app, tmp := startIn(t, testenv.Options{})
	a, err := attachPID(t.Context(), app.PID, lib)
	if err != nil {
		t.Fatal(err)
	}
	left(t, tmp)
	a.Conn.Close()
	err = a.Loaded()
	if !errors.Is(err, ErrNoAgent) {
		t.Fatalf("%v", err)
	}
	isSentence(t, err.Error(), "did not stay", "try again")
	goodAttach(t, app.PID, lib)
	endsWell(t, app)
}

// TestRefused: every known refusal has its own sentence, and any other refusal is reported
// unchanged.
func TestRefused(t *testing.T) {
	for hresult, want := range map[uint32]error{
		uninitialized: ErrTooEarly, notYetAvailable: ErrTooEarly, modNotFound: ErrNotLoaded,
		cancelActivation: ErrNoAgent, unknownCommand: ErrProfilerOff,
	} {
		e := refused(42, &diagnostics.ServerError{HRESULT: hresult})
		if !errors.Is(e, want) {
			t.Errorf("0x%08x: %v, want %v", hresult, e, want)
		}
		isSentence(t, e.Error(), "process 42")
	}
	isSentence(t, refused(42, &diagnostics.ServerError{HRESULT: 0x80004005}).Error(), "process 42", "0x80004005")
}

// prepared unpacks the library for a process.
func prepared(t *testing.T, pid int) (*live.Process, *folder) {
	t.Helper()
	p, err := live.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	f, err := unpack(p.Dir(), library(t))
	if err != nil {
		t.Fatal(err)
	}
	return p, f
}

// TestEnds: the process ends after the library was unpacked.
func TestEnds(t *testing.T) {
	app, tmp := startIn(t, testenv.Options{})
	p, f := prepared(t, app.PID)
	endsWell(t, app)
	_, err := load(t.Context(), p, f, library(t))
	if !errors.Is(err, live.ErrExited) {
		t.Errorf("%v", err)
	}
	isSentence(t, explain(p, err).Error(), "has exited", "start the program again")
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	left(t, tmp)
}

// TestStopped: a process that cannot answer is not even asked.
func TestStopped(t *testing.T) {
	lib := library(t)
	app, tmp := startIn(t, testenv.Options{})
	if err := syscall.Kill(app.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitState(t, app.PID, 'T')
	badAttach(t, app.PID, lib, ErrStopped, "kill -CONT")
	if err := syscall.Kill(app.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	left(t, tmp)
	goodAttach(t, app.PID, lib)
	endsWell(t, app)
}

func waitState(t *testing.T, pid int, want byte) {
	t.Helper()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, ok := strings.Cut(string(stat), ") "); ok && rest[0] == want {
			return
		}
	}
}

// TestHangs: attaching to a runtime that does not answer ends after a limit, or when the caller's
// context ends. Then nothing is left behind, and attaching works later.
func TestHangs(t *testing.T) {
	lib := library(t)
	app, tmp := startIn(t, testenv.Options{})
	release := holdThreads(t, app.PID)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(folders(t, tmp)) == 0 {
			runtime.Gosched()
		}
		cancel()
	}()
	if _, err := attachPID(ctx, app.PID, lib); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	left(t, tmp)
	badAttach(t, app.PID, lib, ErrNoAnswer, "within 10s", "clrsnap stack")
	left(t, tmp)
	release()
	goodAttach(t, app.PID, lib)
	left(t, tmp)
	endsWell(t, app)
}

// holdThreads stops all threads but the main thread, like a debugger, so the process does not
// look stopped. The debugger is another process: its end lets the threads go.
func holdThreads(t *testing.T, pid int) (release func()) {
	t.Helper()
	cmd := holder.Command(pid)
	if said := testenv.StartSaying(t, cmd); said != "held" {
		t.Fatalf("the debugger says %q", said)
	}
	return func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

var holder = role.New("holder", func(a role.Args) error {
	runtime.LockOSThread()
	pid := a.Int(0)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		tid, e := strconv.Atoi(task.Name())
		if err = errors.Join(err, e); tid != pid {
			err = errors.Join(err, unix.PtraceSeize(tid), unix.PtraceInterrupt(tid))
		}
	}
	if err != nil {
		return err
	}
	fmt.Println("held")
	time.Sleep(time.Hour)
	return nil
})

// TestForeignConnection: a process that connects to the socket, but is not the target, is hung up
// on.
func TestForeignConnection(t *testing.T) {
	app, tmp := startIn(t, testenv.Options{})
	p, f := prepared(t, app.PID)
	foreign, err := net.Dial("unix", f.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	a, err := load(t.Context(), p, f, library(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.PID != app.PID {
		t.Errorf("took process %d for %d", a.PID, app.PID)
	}
	begin(t, a)
	if n, err := foreign.Read(make([]byte, 1)); err == nil {
		t.Errorf("the other one got %d bytes", n)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	left(t, tmp)
	endsWell(t, app)
}

// TestNamespaces: a program in a container, with its own mounts, processes and network. Its
// directories take the library or do not.
func TestNamespaces(t *testing.T) {
	layer.Live(t)
	lib := library(t)
	for _, tt := range []struct{ name, script, where string }{
		{"tmpfs", "mount -t tmpfs none /tmp", "/tmp"},
		{"noexec", "mount -t tmpfs -o noexec none /tmp; mount -t tmpfs none /var/tmp", "/var/tmp"},
		{"link", "mount -t tmpfs none /tmp; mkdir /tmp/a; ln -s /tmp/a /tmp/b; export TMPDIR=/tmp/b", "/tmp/a"},
		{"long", "mount -t tmpfs none /tmp; export TMPDIR=/tmp/" + strings.Repeat("x", 75) + "; mkdir $TMPDIR", "/tmp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startSpecial(t, namespaceProgram(t, tt.script))
			goodAttach(t, s.pid, lib)
			if file := mapped(t, s.pid); filepath.Dir(filepath.Dir(file)) != tt.where {
				t.Errorf("%q is mapped, want one in %s", file, tt.where)
			}
			left(t, fmt.Sprintf("/proc/%d/root%s", s.pid, tt.where))
			s.endsWell(t)
		})
	}
}

// TestNoPlace: no directory takes the library. The error names each directory, with the reason.
func TestNoPlace(t *testing.T) {
	net := filepath.Dir(testenv.Kit(t).Host(testenv.DefaultRuntime))
	s := startSpecial(t, namespaceProgram(t, `
		for dir in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o noexec none $dir; done
		mount -t tmpfs -o ro none /run
		mount --bind `+net+` `+net+`; mount -o remount,bind,ro `+net+`
		cd /run`))
	badAttach(t, s.pid, library(t), ErrNoPlace,
		"/tmp: mounted noexec", "/var/tmp: mounted noexec", "/dev/shm: mounted noexec", "/run: read-only",
		net+": read-only", "tmpfs")
	left(t, fmt.Sprintf("/proc/%d/root/tmp", s.pid))
	s.endsWell(t)
}

// TestNobody: a user without rights can attach to his own programs only. Root can attach to the
// user's programs too, and leaves no files of root there.
func TestNobody(t *testing.T) {
	needRoot(t)
	tmp := nobodysDir(t)
	s := startSpecial(t, nobodysProgram(t, tmp))
	if out, err := asNobody(t, public(t, attacher, s.pid)).CombinedOutput(); err != nil {
		t.Errorf("its own program: %v: %s", err, out)
	}
	left(t, tmp)
	goodAttach(t, s.pid, library(t))
	left(t, tmp)
	s.endsWell(t)

	app, tmp := startIn(t, testenv.Options{})
	out, err := asNobody(t, public(t, attacher, app.PID)).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Errorf("root's program: %v", err)
	}
	isSentence(t, strings.TrimSpace(string(out)), "not permitted", "root")
	left(t, tmp)
	endsWell(t, app)
}

// TestMemory: the agent is not loaded into a process whose control group has no memory left for the agent.
func TestMemory(t *testing.T) {
	for left, refused := range map[int64]bool{-1 << 20: true, 2 << 20: true, 20 << 20: false} {
		groups := cgroup.State{Memory: []cgroup.Memory{
			{Group: "/", Max: 1 << 30, Used: 1 << 20}, {Group: "/shop", Max: 120 << 20, Used: 130<<20 - left,
				Reclaim: 10 << 20},
		}}
		if err := checkMemory(42, &groups); errors.Is(err, ErrNoMemory) != refused {
			t.Errorf("%d MiB left: %v", left>>20, err)
		} else if err != nil && !strings.Contains(err.Error(), "group /shop has") {
			t.Error(err)
		}
	}
	if err := checkMemory(42, &cgroup.State{}); err != nil {
		t.Error(err)
	}
}
