package openfiles

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"clrsnap/internal/procfs"
)

// TestCallOf: a child that writes to a full pipe is in that call, and one that waits for something else is in none.
func TestCallOf(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	writes := start(t, w, "yes")
	sleeps := start(t, nil, "sleep", "60")
	var c Call
	for ok := false; !ok; time.Sleep(time.Millisecond) { // until the pipe is full
		if c, ok = CallOf(writes, writes.PID()); ok && !c.Writes {
			ok = false // the program has not begun yet
		}
	}
	if !c.IsPipe() || c.IsSocket() || c.IsTerminal() || c.FD != 1 {
		t.Errorf("%+v", c)
	}
	if c, ok := CallOf(sleeps, sleeps.PID()); ok {
		t.Errorf("%+v", c)
	}
}

func start(t *testing.T, stdout *os.File, name string, args ...string) procfs.Dir {
	t.Helper()
	cmd := exec.Command(name, args...)
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir, err := procfs.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dir.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return dir
}
