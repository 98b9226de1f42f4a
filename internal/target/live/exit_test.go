package live

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The end of a process is known before its parent collects it, and with newer kernels later too.
func TestEndedBy(t *testing.T) {
	for _, tt := range []struct {
		script string
		want   unix.Signal
	}{
		{"read x; kill -ABRT $$; read x", unix.SIGABRT},
		{"read x; kill -KILL $$; read x", unix.SIGKILL},
		{"read x; exit 134", 0},
	} {
		cmd := exec.Command("/bin/sh", "-c", tt.script)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p, err := Open(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.EndedBy(); got != 0 {
			t.Errorf("%q: it lives, and was ended by %v", tt.script, got)
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		if !p.WaitExit(waitLimit) {
			t.Fatalf("%q has not ended", tt.script)
		}
		if got := p.EndedBy(); got != tt.want {
			t.Errorf("%q, not collected yet: ended by %v", tt.script, got)
		}
		in.Close()
		_ = cmd.Wait()
		got := p.EndedBy()
		if got != tt.want && got != 0 || tt.want == syscall.SIGABRT && got == 0 && tellsCollected() {
			t.Errorf("%q, collected: ended by %v", tt.script, got)
		}
		p.Close()
	}
}

// tellsCollected reports whether the kernel reports the end of a collected process.
func tellsCollected() bool {
	cmd := exec.Command("/bin/true")
	if cmd.Start() != nil {
		return false
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_ = cmd.Wait()
	_, ok := collected(fd)
	return ok
}
