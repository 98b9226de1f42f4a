package live

import (
	"errors"
	"os/exec"
	"testing"

	"clrsnap/internal/testenv"
)

// TestReused: once a process has ended, nothing is read of another process with its number, and
// the error says that the first process has ended.
func TestReused(t *testing.T) {
	first := exec.Command("sleep", "600")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	pid := first.Process.Pid
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	maps, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Executable(); err != nil {
		t.Fatal(err)
	}
	first.Process.Kill()
	first.Wait()
	testenv.Reuse(t, pid, "tail", "-f", "/dev/null")
	q, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	others, err := q.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	for what, do := range map[string]func() error{
		"the executable": func() error { _, err := p.Executable(); return err },
		"a file":         func() error { _, err := p.OpenFile("/etc/passwd"); return err },
		"a mapping":      func() error { _, err := p.OpenMapping(&maps[0]); return err },
		"the mappings":   func() error { _, err := p.Mappings(); return err },
		"the threads":    func() error { _, err := p.Threads(); return err },
		"memory":         func() error { return p.ReadMemory(b[:], others[0].Start) },
		"some memory":    func() error { _, err := p.ReadPartial(b[:], others[0].Start); return err },
		"the command":    func() error { _, err := p.Dir().ReadFile("cmdline"); return err },
		"the tasks":      func() error { _, err := p.Dir().Names("task"); return err },
		"the root":       func() error { _, err := p.Dir().Root(); return err },
	} {
		if err := do(); !errors.Is(err, ErrExited) {
			t.Errorf("%s of a process whose number is another's: %v", what, err)
		}
	}
	if _, err := OpenDir(p.Dir()); !errors.Is(err, ErrNoProcess) {
		t.Errorf("opened again: %v", err)
	} else {
		t.Log(err)
	}
	if _, err := OpenDir(q.Dir()); err != nil {
		t.Errorf("the other one: %v", err)
	}
}
