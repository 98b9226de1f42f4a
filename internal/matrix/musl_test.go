package matrix

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

var muslRow = supportRow{"9.0.9", "single file, musl"}

// TestMusl takes the stacks of a program for Alpine Linux. The C library there has no unwind information.
func TestMusl(t *testing.T) {
	layer.Matrix(t)
	p := testenv.PublishMusl(t, "scenarios", "")
	dumpEach(t, p, muslRow)
	checkFates(t, p, livetest.Command(t), muslRow, "single-file")
}

// TestMuslNewest is TestMusl for the newest .NET.
func TestMuslNewest(t *testing.T) {
	layer.Matrix(t)
	p, row := testenv.PublishMuslNewest(t, "scenarios"), supportRow{"11.0.0", muslRow.shape}
	dumpEach(t, p, row)
	checkFates(t, p, livetest.Command(t), row, "single-file")
}

// TestMuslNative walks a C program that blocks in musl: through musl's functions, out of
// signal handlers, and to the base of the stack.
func TestMuslNative(t *testing.T) {
	layer.Matrix(t)
	exe := filepath.Join(t.TempDir(), "threads")
	compile := exec.Command(testenv.MuslCC(t), "-O2", "-o", exe, "../../testdata/musl/threads.c")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pid := startUntilReady(t, exec.Command(exe))
	testenv.UntilSeen(t, func() string {
		const call = "0 0x0 " // read(0, …)
		if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid)); !strings.HasPrefix(string(b), call) {
			return "the main thread that waits for its input"
		}
		return ""
	})
	for _, o := range []clrsnap.Options{{NativeOnly: true}, {NativeOnly: true, AlwaysStop: true}} {
		s := snapshotPID(t, pid, o)
		seen := map[string]bool{}
		for i := range s.Threads {
			th := &s.Threads[i]
			wantComplete(t, th)
			seen[ownFunctions(th.Frames)] = true
		}
		for _, want := range []string{
			"main", "compare in_qsort run", "in_cond_wait run", "handler in_handler run", "handler in_loop run",
			"in_printf run",
		} {
			if !seen[want] {
				t.Errorf("no stack is %q: %v", want, seen)
			}
		}
	}
}

// snapshotPID takes a snapshot of a process.
func snapshotPID(t *testing.T, pid int, o clrsnap.Options) *snapshot.Snapshot {
	t.Helper()
	p, err := clrsnap.Open(context.Background(), pid, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMuslEnding: a function that ends the program as the C library does is not taken for the base of the stack, not
// even in a static program without unwind information.
func TestMuslEnding(t *testing.T) {
	layer.Matrix(t)
	exe := filepath.Join(t.TempDir(), "ending")
	cmd := exec.Command(testenv.MuslCC(t),
		"-O2", "-static", "-fno-asynchronous-unwind-tables", "-o", exe, "../../testdata/musl/ending.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pid := startUntilReady(t, exec.Command(exe))
	var th *snapshot.Thread
	has := func(method string) bool {
		return slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool { return f.Method == method })
	}
	testenv.UntilSeen(t, func() string {
		th = &snapshotPID(t, pid, clrsnap.Options{NativeOnly: true}).Threads[0]
		if has("__stdio_write") {
			return "the thread behind the write of its first line"
		}
		return ""
	})
	if !has("ending") || th.Complete && !has("main") || !th.Complete && th.Error == "" {
		t.Errorf("complete %v, error %q\n%s", th.Complete, th.Error, livetest.Text(th.Frames))
	}
}

// ownFunctions names the program's own functions on a stack, leaf first.
func ownFunctions(frames []snapshot.Frame) string {
	var names []string
	for _, f := range frames {
		if f.Module == "threads" && f.Method != "_start" && f.Method != "_start_c" {
			names = append(names, f.Method)
		}
	}
	return strings.Join(slices.Compact(names), " ")
}

// startUntilReady starts a command, waits for the word READY, and returns the process id. After the test the command's
// standard input is closed, and so the command ends.
func startUntilReady(t *testing.T, cmd *exec.Cmd) (pid int) {
	t.Helper()
	if said := testenv.StartFed(t, cmd); said != "READY" {
		t.Fatalf("%s said %q", cmd.Path, said)
	}
	return cmd.Process.Pid
}
