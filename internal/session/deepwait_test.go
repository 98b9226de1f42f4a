package session_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

// TestDeepWait: a thread that starts a program waits uninterruptibly until the program begins, and so cannot be
// stopped. clrsnap shows the thread's wait nevertheless, with or without a stack.
func TestDeepWait(t *testing.T) {
	layer.Live(t)
	program, end := heldProgram(t)
	a := testenv.Start(t, "starting", testenv.Options{Args: []string{"--program", program}})
	for name, o := range map[string]clrsnap.Options{"as usual": {}, "stopped": {AlwaysStop: true}} {
		t.Run(name, func(t *testing.T) { starts(t, livetest.Open(t, a, o), o) })
	}
	end()
	livetest.EndsWell(t, a)
}

// heldProgram returns the path of a program that does not begin until end is called: whoever executes the program has
// to wait for a lease of the file (fcntl(2), F_SETLEASE).
func heldProgram(t *testing.T) (path string, end func()) {
	t.Helper()
	b, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "held")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	return path, func() { f.Close() }
}

// deepWait matches the thread's state, with the kernel's function if the kernel tells the function.
var deepWait = regexp.MustCompile(`^in an uninterruptible wait( \(\w+\))?$`)

// starts checks the report about the thread that starts a program.
func starts(t *testing.T, p *clrsnap.Process, o clrsnap.Options) {
	t.Helper()
	th := starter(t, p)
	for try := 0; th.Kernel == "" && try < 50; try++ { // until the thread has come so far
		time.Sleep(100 * time.Millisecond)
		th = starter(t, p)
	}
	t.Logf("%q, %q, %q\n%s", th.State, th.Kernel, th.Error, livetest.Text(th.Frames))
	if th.State != "waiting for a process (vfork)" || !deepWait.MatchString(th.Kernel) {
		t.Errorf("%q, %q", th.State, th.Kernel)
	}
	if o.AlwaysStop {
		if len(th.Frames) != 0 || !strings.Contains(th.Error, "state D") {
			t.Errorf("%d frames, %q", len(th.Frames), th.Error)
		}
		return
	}
	if th.Pause != 0 || !slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool {
		return f.Method == "System.Diagnostics.Process.Start"
	}) {
		t.Errorf("%+v", th)
	}
}

// starter is the thread that starts a program.
func starter(t *testing.T, p *clrsnap.Process) *snapshot.Thread {
	t.Helper()
	snap, err := p.SnapshotAll(context.Background(), func(th *clrsnap.Thread) bool { return th.Name == "starter" })
	if err != nil || len(snap.Threads) != 1 {
		t.Fatalf("%v, %d threads", err, len(snap.Threads))
	}
	return &snap.Threads[0]
}
