package clrsnap_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"
)

func startCommand(t *testing.T, attr *syscall.SysProcAttr, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func TestOpenBadProcess(t *testing.T) {
	for _, pid := range []int{0, -1, 1 << 30} {
		_, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{})
		livetest.WantSentence(t, err, strconv.Itoa(pid))
	}
	sleep := startCommand(t, nil, "sleep", "600")
	waitForState(t, sleep.Process.Pid, "S") // the loader's first frame has no unwind information
	_, err := clrsnap.Open(context.Background(), sleep.Process.Pid, clrsnap.Options{})
	livetest.WantSentence(t, err, strconv.Itoa(sleep.Process.Pid), ".NET")
	if !errors.Is(err, clrsnap.ErrNotDotNet) {
		t.Errorf("%v is not ErrNotDotNet", err)
	}
	p, err := clrsnap.Open(context.Background(), sleep.Process.Pid, clrsnap.Options{NativeOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil || len(snap.Threads) != 1 || !snap.Threads[0].Complete || len(snap.Threads[0].Frames) == 0 {
		t.Errorf("native stack of sleep: %+v, %v", snap, err)
	}
	if _, err := p.Suspend(1); !errors.Is(err, clrsnap.CORPROF_E_RUNTIME_UNINITIALIZED) {
		t.Errorf("suspending a managed thread of sleep: %v", err)
	}

	zombie := startCommand(t, nil, "true")
	waitForState(t, zombie.Process.Pid, "Z")
	_, err = clrsnap.Open(context.Background(), zombie.Process.Pid, clrsnap.Options{})
	livetest.WantSentence(t, err, strconv.Itoa(zombie.Process.Pid))
}

// waitForState waits until the kernel shows a process in a state.
func waitForState(t *testing.T, pid int, state string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err == nil && strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " "+state) {
			return
		}
	}
	t.Fatalf("process %d is never in state %s", pid, state)
}

// TestOpenOtherUser: a user without permission for a process gets an error that says so.
func TestOpenOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		_, err := clrsnap.Open(context.Background(), 1, clrsnap.Options{})
		livetest.WantSentence(t, err)
		if !errors.Is(err, live.ErrPermission) {
			t.Errorf("%v is not a permission error", err)
		}
		return
	}
	a := testenv.Start(t, "idle", testenv.Options{})
	dir, err := os.MkdirTemp("", "clrsnap")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	cmd := opener.Command(a.PID)
	cmd.Path, cmd.Dir = dir+"/test", "/"
	if err := role.Copy(cmd.Path); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v", err)
	}
	livetest.WantSentence(t, errors.New(strings.TrimSpace(string(out))), strconv.Itoa(a.PID), "permi", "root")
	livetest.EndsWell(t, a)
}

var opener = role.New("opener", func(a role.Args) error {
	_, err := clrsnap.Open(context.Background(), a.Int(0), clrsnap.Options{})
	return err
})

// TestExitWhileRead kills the target in the middle of a snapshot.
func TestExitWhileRead(t *testing.T) {
	const times = 50
	for i := range times {
		a := testenv.Start(t, "idle", testenv.Options{Args: []string{"--threads", "8"}})
		p := livetest.Open(t, a, clrsnap.Options{AlwaysStop: i%2 == 0})
		killed := make(chan error)
		go func() {
			time.Sleep(time.Duration(i) * 200 * time.Microsecond) // somewhere in the snapshots below
			killed <- syscall.Kill(a.PID, syscall.SIGKILL)
		}()
		var err error
		for err == nil {
			_, err = p.SnapshotAll(context.Background(), nil)
		}
		if e := <-killed; e != nil {
			t.Fatal(e)
		}
		livetest.WantSentence(t, err, strconv.Itoa(a.PID))
		p.Close()
		<-a.Ended()
	}
}

// TestThreadChurn: threads that live for milliseconds. Each thread either has a stack or has ended.
func TestThreadChurn(t *testing.T) {
	a := testenv.Start(t, "scenarios", testenv.Options{Args: shortLived})
	p := livetest.Open(t, a, clrsnap.Options{})
	met := map[uint64]bool{}
	// Most threads end between the listing and their turn: go on until the loop has met three.
	deadline := time.Now().Add(testenv.Hang)
	for n := 0; n < 100 || len(met) < 3 && time.Now().Before(deadline); n++ {
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range snap.Threads {
			if th.Name != "mayfly" {
				continue
			}
			met[uint64(th.OSThreadID)] = true
			if !th.Complete {
				t.Logf("%d %q: %s", th.OSThreadID, th.State, th.Error)
			}
		}
	}
	t.Logf("met %d threads", len(met))
	if len(met) == 0 {
		t.Error("no short-lived thread was met")
	}
	livetest.EndsWell(t, a)
}
