package matrix

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestCoreRefused: a dump with an unreadable runtime is refused with the reason: the runtime's file is missing, or the
// dump is cut off. The dump's native stacks can be had all the same.
func TestCoreRefused(t *testing.T) {
	path := kernelDump(t, testenv.OrdinaryRuntime(t))
	library := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{}).Process.Runtime.Path
	empty := t.TempDir()
	refused(t, path, clrsnap.CoreOptions{Sysroot: empty},
		"the dump needs the file "+library+" (build id ",
		"), but this file is not below "+empty+": no such file or directory "+
			"(--sysroot names the folder with the process's files)")

	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, st.Size()/8); err != nil {
		t.Fatal(err)
	}
	refused(t, path, clrsnap.CoreOptions{},
		"): the dump is cut off: ", " bytes of memory are missing at the end: ",
		": copy or make the dump once more, or see native stacks only with --native")
}

// TestCoreOfHostRefused: the file of a single-file host can be given by itself.
func TestCoreOfHostRefused(t *testing.T) {
	path := kernelDump(t, testenv.DefaultRuntime)
	host := livetest.SnapshotCore(t, path, clrsnap.CoreOptions{}).Process.Runtime.Path
	empty := t.TempDir()
	refused(t, path, clrsnap.CoreOptions{Sysroot: empty},
		"the dump needs the file "+host+" (build id ",
		"), but this file is not below "+empty+": no such file or directory "+
			"(--exe names this file, --sysroot the folder with the process's files)")
	livetest.SnapshotCore(t, path, clrsnap.CoreOptions{Sysroot: empty, Executable: host})
}

// kernelDump has the kernel dump a program on a runtime.
func kernelDump(t *testing.T, runtime string) (path string) {
	t.Helper()
	testenv.Kit(t).Need(t, runtime)
	a := testenv.Start(t, "idle", testenv.DumpOptions(t, testenv.DumpKernel, testenv.Options{Runtime: runtime}))
	return testenv.Dump(t, a, testenv.DumpKernel)
}

// refused requires that a dump is refused with an error that has the given parts, and that the dump's native stacks can
// be had.
func refused(t *testing.T, path string, o clrsnap.CoreOptions, parts ...string) {
	t.Helper()
	p, err := clrsnap.OpenCore(context.Background(), path, o)
	if err == nil {
		p.Close()
		t.Fatalf("%+v: not refused", o)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "update clrsnap") || errors.Is(err, clrsnap.ErrUnsupported) {
		t.Errorf("the runtime is to blame: %v", err)
	}
	o.NativeOnly = true
	if snap := livetest.SnapshotCore(t, path, o); len(snap.Threads) == 0 {
		t.Error("no native stacks")
	}
}

// TestNoMessage: a small dump lacks the message of the exception that ended the program. A larger dump has the message.
func TestNoMessage(t *testing.T) {
	layer.Matrix(t)
	const runtime = "net9" // small dumps of .NET 9 lack pages
	o := testenv.Options{Runtime: runtime, Args: []string{"--mode", "unhandled"}}
	o = testenv.DumpOptions(t, testenv.DumpCrash, o)
	const triage = "3"
	o.Env = append(o.Env, "DOTNET_DbgMiniDumpType="+triage)
	a := testenv.Start(t, "ordeal", o)
	a.Stop()
	snap := livetest.SnapshotCore(t, a.CrashDump(), clrsnap.CoreOptions{})
	i := slices.IndexFunc(snap.Threads, func(th snapshot.Thread) bool { return th.Crashed })
	if i < 0 {
		t.Fatal("no thread has crashed")
	}
	e := snap.Threads[i].Exception
	if e == nil || e.Type != "System.InvalidOperationException" || e.Message != "" || !e.NoMessage {
		t.Errorf("%+v", e)
	}
	checkConsequence(t, snap)
}

// checkConsequence requires that a dump without some pages names the consequence: each thread with an incomplete
// stack.
func checkConsequence(t *testing.T, snap *snapshot.Snapshot) {
	t.Helper()
	missing := snap.Process.Core.Missing
	i := slices.IndexFunc(missing, func(s string) bool {
		return strings.Contains(s, "neither in the dump nor in a file")
	})
	if i < 0 {
		t.Fatalf("a small dump lacks no pages: %q", missing)
	}
	t.Log(missing[i])
	_, so, _ := strings.Cut(missing[i], ", the first at ")
	_, so, found := strings.Cut(so, ": ")
	said := false
	for _, what := range []string{
		" not complete (", "may be missing, first in thread ", "may be the kernel's",
		"nothing that is shown needs them",
	} {
		said = said || strings.Contains(so, what)
	}
	if !found || !said {
		t.Errorf("%q does not say what is missing", missing[i])
	}
	for _, th := range snap.Threads {
		if strings.Contains(th.Error, "the dump has left the memory out") &&
			!strings.Contains(so, strconv.Itoa(th.OSThreadID)) && !strings.Contains(so, "…") {
			t.Errorf("thread %d is not complete (%s), but only this is said: %s", th.OSThreadID, th.Error, so)
		}
	}
}
