package details

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"

	"golang.org/x/sys/unix"
)

// TestStopped: of a program that a signal has stopped each thread says so, beside what it waits for.
func TestStopped(t *testing.T) {
	a := startWaits(t, testenv.DefaultRuntime, testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	if err := unix.Kill(a.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(a.PID, unix.SIGCONT) }()
	time.Sleep(100 * time.Millisecond)
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	for i := range snap.Threads {
		th := &snap.Threads[i]
		if th.Kernel != "stopped by a signal" || th.State != th.Kernel {
			t.Errorf("%q: %q, %q", th.Name, th.Kernel, th.State)
		}
		if th.Wait != nil && th.Wait.Kind == profile.HandleOne && th.Wait.Certain {
			waits++
		}
	}
	if waits < 5 {
		t.Errorf("only %d waits for handles", waits)
	}
}

// forks has a thread in a wait that cannot be interrupted: for its child, which shares its memory.
const forks = `#include <stdio.h>
#include <unistd.h>
int main(void) {
    puts("forks");
    fflush(stdout);
    if (vfork() == 0) { sleep(60); _exit(0); }
    return 0;
}
`

// TestUninterruptible: a thread in such a wait says so.
func TestUninterruptible(t *testing.T) {
	layer.Live(t)
	cc := testenv.CC(t)
	dir := t.TempDir()
	source, program := filepath.Join(dir, "forks.c"), filepath.Join(dir, "forks")
	if err := os.WriteFile(source, []byte(forks), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testenv.StartSaying(t, cmd)
	defer func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }()
	time.Sleep(200 * time.Millisecond)
	p, err := clrsnap.Open(context.Background(), cmd.Process.Pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if th := &snap.Threads[0]; !strings.HasPrefix(th.Kernel, "in an uninterruptible wait") {
		t.Errorf("%q, state %q, %s", th.Kernel, th.State, th.Error)
	}
}
