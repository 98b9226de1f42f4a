package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/agent"
	"clrsnap/internal/testenv"
)

// TestEveryLibc: one library works with glibc and with musl.
func TestEveryLibc(t *testing.T) {
	lib := library(t)
	t.Run("glibc", func(t *testing.T) { testLibc(t, lib, testenv.CC(t)) })
	t.Run("musl", func(t *testing.T) {
		cc, err := exec.LookPath("musl-gcc")
		if err != nil {
			t.Skip("SKIPPED, NOTHING WAS TESTED: no musl-gcc (Debian's package musl-tools)")
		}
		testLibc(t, lib, cc)
	})
}

func testLibc(t *testing.T, lib, cc string) {
	program := filepath.Join(t.TempDir(), "load")
	build := exec.Command(cc, "-std=gnu11", "-Wno-override-init", "-I../../agent", "-o", program,
		"testdata/load.c", "-pthread", "-ldl")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	l := listen(t)
	cmd := exec.Command(program, lib)
	cmd.Env = append(os.Environ(), l.Environment(lib)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	c, err := l.Accept(10 * time.Second)
	if err != nil {
		cmd.Process.Kill()
		t.Fatal(err, <-ended)
	}
	defer c.Close()
	if _, err := c.Begin(agent.Subscription{Events: agent.Threads}); err != nil {
		t.Fatal(err, <-ended)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-c.Done()
	var threads []uint64
	if err := c.Drain(func(r *agent.Record) error {
		threads = append(threads, r.Values[0])
		return nil
	}); err != nil {
		t.Error(err)
	}
	if slices.Sort(threads); !slices.Equal(threads, []uint64{1, 2, 3}) || c.PID() != cmd.Process.Pid {
		t.Errorf("threads %v of process %d, which is %d", threads, c.PID(), cmd.Process.Pid)
	}
}
