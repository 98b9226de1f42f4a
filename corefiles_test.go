package clrsnap_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestCoreRefused: a dump whose runtime cannot be read, because its file is not to be
// had or because the dump is cut off, is refused with that reason; its native stacks
// are there nevertheless.
func TestCoreRefused(t *testing.T) {
	path := kernelDump(t, "net9")
	library := snapshotCore(t, path, clrsnap.CoreOptions{}).Process.Runtime.Path
	empty := t.TempDir()
	refused(t, path, clrsnap.CoreOptions{Sysroot: empty},
		"the dump needs the file "+library+" (build id ",
		"), which is not below "+empty+": no such file or directory (--sysroot names the folder that has the process's files)")

	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, st.Size()/8); err != nil {
		t.Fatal(err)
	}
	refused(t, path, clrsnap.CoreOptions{}, "): the dump is cut off: ", " bytes of memory are missing at its end: ", ": copy or make the dump once more, or see native stacks only with --native")
}

// TestCoreOfHostRefused: the file of a single-file host can be given by itself.
func TestCoreOfHostRefused(t *testing.T) {
	path := kernelDump(t, "net8")
	host := snapshotCore(t, path, clrsnap.CoreOptions{}).Process.Runtime.Path
	empty := t.TempDir()
	refused(t, path, clrsnap.CoreOptions{Sysroot: empty},
		"the dump needs the file "+host+" (build id ",
		"), which is not below "+empty+": no such file or directory (--exe names this file, --sysroot the folder that has the process's files)")
	snapshotCore(t, path, clrsnap.CoreOptions{Sysroot: empty, Executable: host})
}

// kernelDump has the kernel dump a program on a runtime.
func kernelDump(t *testing.T, runtime string) (path string) {
	t.Helper()
	testenv.Kit(t).Need(t, runtime)
	a := testenv.Start(t, "idle", testenv.DumpOptions(t, testenv.DumpKernel, testenv.Options{Runtime: runtime}))
	return testenv.Dump(t, a, testenv.DumpKernel)
}

// refused requires that a dump is refused with parts of a text, but for its native stacks.
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
	if snap := snapshotCore(t, path, o); len(snap.Threads) == 0 {
		t.Error("no native stacks")
	}
}

// TestNoMessage: a small dump lacks the message of the exception that has ended the
// program, and a larger one has it.
func TestNoMessage(t *testing.T) {
	const runtime = "net9"
	testenv.Kit(t).Need(t, runtime)
	o := testenv.DumpOptions(t, testenv.DumpCrash, testenv.Options{Runtime: runtime, Args: []string{"--mode", "unhandled"}})
	const triage = "3"
	o.Env = append(o.Env, "DOTNET_DbgMiniDumpType="+triage)
	a := testenv.Start(t, "ordeal", o)
	a.Stop()
	snap := snapshotCore(t, a.CrashDump(), clrsnap.CoreOptions{})
	i := slices.IndexFunc(snap.Threads, func(th profile.Thread) bool { return th.Crashed })
	if i < 0 {
		t.Fatal("no thread has crashed")
	}
	e := snap.Threads[i].Exception
	if e == nil || e.Type != "System.InvalidOperationException" || e.Message != "" || !e.NoMessage {
		t.Errorf("%+v", e)
	}
}
