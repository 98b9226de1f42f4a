package clrsnap_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"clrsnap"
	"clrsnap/internal/testenv"
)

// TestPIDNamespace looks at a program in a PID namespace of its own, as it runs
// in a container: the runtime there knows its threads by other ids than we do.
func TestPIDNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can make a PID namespace")
	}
	kit := testenv.Kit(t)
	cmd := exec.Command(kit.Host(testenv.DefaultRuntime), testenv.Build(t, "idle"), "--threads", "3", "--stdin", "--max-seconds", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the target ended with %v", err)
		}
	}()
	said := bufio.NewScanner(stdout)
	var first string
	for said.Scan() && said.Text() != "READY" {
		if first == "" {
			first = said.Text()
		}
	}
	if first != "PID 1" {
		t.Fatalf("the target said %q, not that it is process 1 of its namespace", first)
	}
	p, err := clrsnap.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.SnapshotAll(nil)
	if err != nil {
		t.Fatal(err)
	}
	idle := 0
	for i := range s.Threads {
		th := &s.Threads[i]
		if !th.Complete {
			t.Errorf("thread %d %q: %s", th.OSThreadID, th.Name, th.Error)
		}
		if !strings.HasPrefix(th.Name, "idle-") {
			continue
		}
		idle++
		if th.ThreadID == 0 {
			t.Errorf("%q was not recognised as one of the runtime's threads", th.Name)
			continue
		}
		if err := p.DoStackSnapshot(clrsnap.ThreadID(th.ThreadID), func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error { return errEnough }, 0, nil, nil); !errors.Is(err, errEnough) {
			t.Errorf("DoStackSnapshot of %q: %v, want one callback", th.Name, err)
		}
	}
	if idle != 3 {
		t.Errorf("found %d of 3 threads", idle)
	}
}

var errEnough = errors.New("enough")
