package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestCores dumps a stopped program in every possible way. The stacks in the dump must be the program's own description
// of its stacks, and frame for frame a snapshot of the running process, taken just before the dump.
func TestCores(t *testing.T) {
	layer.Matrix(t)
	for _, runtime := range layer.Size(testenv.KitRuntimes(), testenv.AllRuntimes()) {
		t.Run(testenv.Name(runtime), func(t *testing.T) {
			testenv.Kit(t).Need(t, runtime)
			const shape = testenv.FrameworkDependent
			o := testenv.Options{Runtime: runtime, Args: []string{"--finalizer"}}
			eachDump(t, runtime, testenv.DumpKinds, func(t *testing.T, kind testenv.DumpKind, a *testenv.App) {
				works(t, supportRow{versionOf(runtime, shape), string(shape)}, string(kind))
				running, path := stopAndDump(t, a, kind)
				snap := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{})
				checkScenarioStacks(t, a, snap, kind)
				sameThreads(t, a, running, snap, kind)
				checkCore(t, a, snap, kind)
			}, func(t *testing.T, kind testenv.DumpKind) *testenv.App {
				return testenv.Start(t, "scenarios", testenv.DumpOptions(t, kind, o))
			})
		})
	}
}

// eachDump runs a test for each given kind of dump that a runtime has. In the short form one program is dumped in all
// the ways that the program survives, and then by the kernel, which kills the program. In the full form each dump has
// its own program.
func eachDump(t *testing.T, runtime string, kinds []testenv.DumpKind,
	test func(*testing.T, testenv.DumpKind, *testenv.App), start func(*testing.T, testenv.DumpKind) *testenv.App) {
	t.Helper()
	apart := layer.Size(false, true)
	var a *testenv.App
	survived := slices.DeleteFunc(slices.Clone(kinds), testenv.DumpKind.Kills)
	for _, kind := range append(survived, testenv.DumpKernel, testenv.DumpCrash) {
		if !kind.Runs(runtime) || !slices.Contains(kinds, kind) {
			continue
		}
		if a == nil || apart || kind == testenv.DumpCrash || t.Failed() {
			a = start(t, kind)
		}
		t.Run(string(kind), func(t *testing.T) { test(t, kind, a) })
		if apart && !kind.Kills() {
			livetest.EndsWell(t, a)
		}
	}
}

// stopAndDump stops a program, takes a snapshot, and dumps the stopped program.
func stopAndDump(t *testing.T, a *testenv.App, kind testenv.DumpKind) (running *snapshot.Snapshot, path string) {
	t.Helper()
	if err := syscall.Kill(a.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p := livetest.Open(t, a, clrsnap.Options{})
	running, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if kind.Kills() {
		// The killing signal arrives while the program is stopped, and takes effect when the program is continued.
		go continueWhenKilled(t.Context(), a.PID)
	}
	path = testenv.Dump(t, a, kind)
	if !kind.Kills() {
		if err := syscall.Kill(a.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	return running, path
}

// continueWhenKilled continues a stopped program as soon as a killing signal of testenv.Dump is pending.
func continueWhenKilled(ctx context.Context, pid int) {
	const killing = 1<<(syscall.SIGSYS-1) | 1<<(syscall.SIGABRT-1)
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return // another signal has killed the program
		}
		_, text, _ := strings.Cut(string(b), "ShdPnd:")
		var pending uint64
		if _, err := fmt.Sscanf(text, "%x", &pending); err == nil && pending&killing != 0 {
			syscall.Kill(pid, syscall.SIGCONT)
			return
		}
	}
}

// openCore opens a dump; the caller closes the dump.
func openCore(t testing.TB, path string, o clrsnap.CoreOptions) *clrsnap.Process {
	t.Helper()
	p, err := clrsnap.OpenCore(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// idleDump has gcore dump the program idle.
func idleDump(t *testing.T, o testenv.Options) (path string) {
	t.Helper()
	a := testenv.Start(t, "idle", o)
	path = testenv.GCoreDump(t, a.PID)
	livetest.EndsWell(t, a)
	return path
}

// sameThreads requires that two snapshots of the same moment agree in everything that a dump has. A runtime that dumps
// its own process has to run for the dump: then only the program's blocked threads are compared.
func sameThreads(t *testing.T, a *testenv.App, running, dumped *snapshot.Snapshot, kind testenv.DumpKind) {
	t.Helper()
	byTID := map[int]*snapshot.Thread{}
	for i := range dumped.Threads {
		byTID[dumped.Threads[i].OSThreadID] = &dumped.Threads[i]
	}
	ours := map[int]bool{}
	for _, s := range a.Stacks {
		ours[s.TID] = true
	}
	if len(running.Threads) != len(dumped.Threads) && kind != testenv.DumpCrash {
		t.Errorf("%d threads in the process, %d in the dump", len(running.Threads), len(dumped.Threads))
	}
	threads, frames := 0, 0
	for i := range running.Threads {
		was := &running.Threads[i]
		if kind == testenv.DumpCrash && !ours[was.OSThreadID] {
			continue
		}
		is := byTID[was.OSThreadID]
		if is == nil {
			t.Errorf("thread %d %q is not in the dump", was.OSThreadID, was.Name)
			continue
		}
		same := was.ThreadID == is.ThreadID && was.ManagedThreadID == is.ManagedThreadID && was.Mode == is.Mode
		if !same || was.Complete != is.Complete && !small(kind) {
			t.Errorf("thread %d was %+v, is %+v", was.OSThreadID, was, is)
		}
		if kind.Kills() {
			// The thread has run for a moment: the frames of a signal handler are on top of the old frames.
			is.Frames = is.Frames[max(0, len(is.Frames)-len(was.Frames)):]
		}
		if kind.Kills() && len(is.Frames) > 0 && len(was.Frames) > 0 && is.Frames[0].IP == was.Frames[0].IP-2 {
			// A signal has interrupted the thread's system call. The call is about to be restarted.
			is.Frames[0] = was.Frames[0]
		}
		if small(kind) && !is.Complete && strings.Contains(is.Error, "cannot be named") {
			continue // checkScenarioStacks has checked the stack
		}
		for i := range is.Frames {
			// The part of a dynamic method in a small dump is a matter of chance.
			f := &is.Frames[i]
			unknown := f.Signature == "" || strings.Contains(f.Signature, "?")
			if small(kind) && f.Tier == "dynamic" && unknown && i < len(was.Frames) {
				f.Signature = was.Frames[i].Signature
			}
		}
		if diff := cmp.Diff(was.Frames, is.Frames); diff != "" {
			t.Errorf("thread %d %q of the process (-) and the dump (+):\n%s", was.OSThreadID, was.Name, diff)
		}
		threads, frames = threads+1, frames+len(is.Frames)
	}
	t.Logf("%d threads with %d frames are the same", threads, frames)
}

// checkCore checks the snapshot's description of the dump itself.
func checkCore(t *testing.T, a *testenv.App, snap *snapshot.Snapshot, kind testenv.DumpKind) {
	t.Helper()
	c := snap.Process.Core
	if c == nil {
		t.Fatal("not said to be of a core dump")
	}
	t.Logf("by %q, signal %v, missing: %q", c.Writer, c.Signal, c.Missing)
	writer, signal := "createdump", ""
	switch kind {
	case testenv.DumpGCore:
		writer = "gcore"
	case testenv.DumpKernel:
		writer, signal = "kernel", "SIGSYS"
	case testenv.DumpCrash:
		signal = "SIGABRT"
	}
	if c.Writer != writer {
		t.Errorf("written by %q, want %q", c.Writer, writer)
	}
	crashed := slices.IndexFunc(snap.Threads, func(th snapshot.Thread) bool { return th.Crashed })
	switch {
	case signal == "" && (c.Signal != nil || crashed >= 0):
		t.Errorf("a dump of a program that goes on has signal %v, crashed thread %d", c.Signal, crashed)
	case signal != "" && (c.Signal == nil || c.Signal.Name != signal || crashed < 0):
		t.Errorf("signal %v, want %s; crashed thread %d", c.Signal, signal, crashed)
	}
	if snap.Process.PID != a.PID {
		t.Errorf("process %d, want %d", snap.Process.PID, a.PID)
	}
	if age := time.Since(snap.CapturedAt); age < 0 || age > 10*time.Minute {
		t.Errorf("captured %v ago", age)
	}
}

// TestCoreOnly: calls that need a running process say so.
func TestCoreOnly(t *testing.T) {
	p := openCore(t, idleDump(t, testenv.Options{}), clrsnap.CoreOptions{})
	defer p.Close()
	_, recorded := record.Record(t.Context(), p, record.Options{})
	_, subscribed := events.Subscribe(t.Context(), p, events.Options{})
	for what, err := range map[string]error{"Record": recorded, "Subscribe": subscribed} {
		if err == nil || !strings.Contains(err.Error(), "core dump") {
			t.Errorf("%s: %v", what, err)
		}
	}
	all, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(all)
	once, err := p.SnapshotAtOnce(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(once)
	if diff := cmp.Diff(all, once); diff != "" {
		t.Errorf("one by one (-), at once (+):\n%s", diff)
	}
	// DoStackSnapshot works on a dump as on a running process.
	threads, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	managed := 0
	for _, th := range threads {
		if th.ID == 0 {
			continue
		}
		count := func(id clrsnap.FunctionID, _ uint64, _ *clrsnap.FrameInfo, _ *clrsnap.Context, _ any) error {
			if id != 0 {
				managed++
			}
			return nil
		}
		err := p.DoStackSnapshot(th.ID, count, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil, nil)
		if err != nil && !errors.Is(err, clrsnap.S_FALSE) {
			t.Errorf("thread %d: %v", th.OSThreadID, err)
		}
	}
	if managed == 0 {
		t.Error("DoStackSnapshot has met no frames")
	}
}

// small reports whether dumps of a kind lack the managed heap and the runtime's own.
func small(kind testenv.DumpKind) bool {
	return kind == testenv.DumpNormal || kind == testenv.DumpTriage
}

// checkScenarioStacks compares the stacks of a dump with the program's own description. In a small dump threads and
// dynamic methods have no names; the error of the stack says so.
func checkScenarioStacks(t *testing.T, a *testenv.App, snap *snapshot.Snapshot, kind testenv.DumpKind) {
	t.Helper()
	byTID := map[int]*snapshot.Thread{}
	nameless := 0
	for i := range snap.Threads {
		th := &snap.Threads[i]
		byTID[th.OSThreadID] = th
		switch {
		case small(kind) && strings.Contains(th.Error, "cannot be named") &&
			strings.Contains(th.Error, "the dump has left the memory out"):
			nameless++
		default:
			wantComplete(t, th)
		}
	}
	if nameless > 3 {
		t.Errorf("%d threads have methods without names", nameless)
	}
	for name, want := range a.Stacks {
		th := byTID[want.TID]
		switch {
		case th == nil:
			t.Errorf("%s: no thread %d in the dump", name, want.TID)
			continue
		case !th.Complete:
			if managed, all := livetest.OfKind(th.Frames, snapshot.Managed), len(want.Frames); len(managed) < all {
				t.Errorf("%s: %d managed frames, want %d\n%s", name, len(managed), all, livetest.Text(th.Frames))
			}
			continue
		}
		if err := compareStack(th, want); err != nil {
			t.Errorf("%s: %v\n%s--\n%s", name, err, livetest.Text(th.Frames), strings.Join(want.Lines, "\n"))
		}
		if th.Name != name && !small(kind) || th.ManagedThreadID != want.ManagedID || th.Mode != "preemptive" {
			t.Errorf("%s: name %q, managed id %d (want %d), mode %q",
				name, th.Name, th.ManagedThreadID, want.ManagedID, th.Mode)
		}
		checkNative(t, name, th)
	}
}

// crash makes the program ordeal die, and returns the program's dump.
func crash(t *testing.T, runtime, mode string, kernel bool) (path string) {
	t.Helper()
	kind := testenv.DumpCrash
	if kernel {
		kind = testenv.DumpKernel
	}
	o := testenv.Options{Runtime: runtime, Args: []string{"--mode", mode}}
	a := testenv.Start(t, "ordeal", testenv.DumpOptions(t, kind, o))
	if kernel {
		return a.KernelDump(func() { a.Stop() })
	}
	a.Stop()
	return a.CrashDump()
}

// crashes are ways in which the program ordeal dies, and the facts that the dump must have.
var crashes = []struct {
	mode, signal string
	kernel       bool // the kernel makes the dump; the runtime makes none
	address      uint64
	method       string // on the crashed thread's stack
	thrown       []string
	failFast     string
}{
	{"unhandled", "SIGABRT", false, 0, "Ordeal.Program+<>c.<.cctor>", []string{
		"System.InvalidOperationException: thrown for nobody",
	}, ""},
	{"inner", "SIGABRT", false, 0, "Ordeal.Program+<>c.<.cctor>", []string{
		"System.AggregateException: led to by another",
		"System.ArgumentOutOfRangeException: the first of all (Parameter 'where')",
	}, ""},
	{"abort", "SIGABRT", false, 0, "Ordeal.Program+<>c.<.cctor>", nil, "as it was told to"},
	{"because", "SIGABRT", false, 0, "Ordeal.Program+<>c.<.cctor>", []string{
		"System.ArgumentOutOfRangeException: the first of all (Parameter 'where')",
	}, "because of another"},
	{"overflow", "SIGABRT", true, 0, "Ordeal.Program.Descend", []string{"System.StackOverflowException: "}, ""},
	{"segv", "SIGSEGV", true, 0xdead0000, "Ordeal.Program+<>c.<.cctor>", nil, ""},
}

// crashStates are the states of the thread that ended the process: the thread was not waiting for createdump.
var crashStates = map[string]string{"SIGABRT": "aborted (SIGABRT)", "SIGSEGV": "crashed (SIGSEGV)"}

// TestCrashes: the dump of a crashed program says why and where the program crashed.
func TestCrashes(t *testing.T) {
	layer.Matrix(t)
	for _, runtime := range layer.Size(testenv.Versions(), testenv.AllRuntimes()) {
		for _, c := range crashes {
			t.Run(testenv.Name(runtime)+"/"+c.mode, func(t *testing.T) {
				testenv.Kit(t).Need(t, runtime)
				snap := livetest.SnapshotCore(t, crash(t, runtime, c.mode, c.kernel), clrsnap.CoreOptions{})
				s := snap.Process.Core.Signal
				if s == nil || s.Name != c.signal || c.address != 0 && (!s.HasAddress || s.Address != c.address) {
					t.Errorf("signal %v, want %s", s, c.signal)
				}
				i := slices.IndexFunc(snap.Threads, func(th snapshot.Thread) bool { return th.Crashed })
				if i < 0 {
					t.Fatal("no thread has crashed")
				}
				th := snap.Threads[i]
				if want := crashStates[c.signal]; th.State != want {
					t.Errorf("the crashed thread is said to be %q, want %q", th.State, want)
				}
				there := func(f snapshot.Frame) bool { return strings.HasPrefix(f.Method, c.method) }
				if !th.Complete || !slices.ContainsFunc(th.Frames, there) {
					t.Errorf("%s is not on the crashed thread's stack (complete %v, %s)\n%s",
						c.method, th.Complete, th.Error, livetest.Text(th.Frames))
				}
				f := th.FailFast
				if (f != nil) != (c.failFast != "") || f != nil && f.Message != c.failFast {
					t.Errorf("FailFast %+v, want %q\n%s", f, c.failFast, livetest.Text(th.Frames))
				}
				var thrown []string
				for e := th.Exception; e != nil; e = e.Inner {
					thrown = append(thrown, e.Type+": "+e.Message)
				}
				if len(thrown) != len(c.thrown) {
					t.Fatalf("exceptions %q, want %q", thrown, c.thrown)
				}
				for i, want := range c.thrown {
					if !strings.HasPrefix(thrown[i], want) {
						t.Errorf("exceptions %q, want %q", thrown, c.thrown)
					}
				}
			})
		}
	}
}
