package matrix

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// TestPIDNamespace takes the stacks of a program in a PID namespace of its own, as in a container: the program's
// runtime knows the threads by other ids than the test does.
func TestPIDNamespace(t *testing.T) {
	needRoot(t)
	kit := testenv.Kit(t)
	cmd := exec.Command(kit.Host(testenv.DefaultRuntime), testenv.Build(t, "idle"),
		"--threads", "3", "--stdin", "--max-seconds", "60")
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
	p, err := clrsnap.Open(context.Background(), cmd.Process.Pid, clrsnap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := p.SnapshotAll(context.Background(), nil)
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
		if err := p.DoStackSnapshot(clrsnap.ThreadID(th.ThreadID), once, 0, nil, nil); !errors.Is(err, errEnough) {
			t.Errorf("DoStackSnapshot of %q: %v, want one callback", th.Name, err)
		}
	}
	if idle != 3 {
		t.Errorf("found %d of 3 threads", idle)
	}
	// A dump made from outside has the ids of outside.
	d, err := clrsnap.OpenCore(context.Background(), testenv.GCoreDump(t, cmd.Process.Pid), clrsnap.CoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dumped, err := d.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(dumped)
	if dumped.Process.PID != cmd.Process.Pid || len(dumped.Threads) != len(s.Threads) {
		t.Errorf("the dump is of process %d with %d threads", dumped.Process.PID, len(dumped.Threads))
	}
	for i, th := range dumped.Threads {
		if was := s.Threads[i]; !th.Complete || th.OSThreadID != was.OSThreadID || th.ThreadID != was.ThreadID {
			t.Errorf("thread %d %q with ThreadID %#x is in the dump thread %d %q with ThreadID %#x, complete %v %s",
				was.OSThreadID, was.Name, was.ThreadID, th.OSThreadID, th.Name, th.ThreadID, th.Complete, th.Error)
		}
		if th.ThreadID == 0 {
			continue
		}
		if s, err := d.Snapshot(clrsnap.ThreadID(th.ThreadID)); err != nil || s.OSThreadID != th.OSThreadID {
			t.Errorf("thread %d of the dump by its ThreadID: %+v, %v", th.OSThreadID, s, err)
		}
	}
}

var errEnough = errors.New("enough")

// once is a callback that ends the walk.
func once(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
	return errEnough
}
