package clrsnap_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"
)

// snapshots takes snapshots of all threads, in every possible way, until the process is killed.
var snapshots = role.New("snapshots", func(a role.Args) error {
	p, err := clrsnap.Open(context.Background(), a.Int(0), clrsnap.Options{AlwaysStop: true})
	if err != nil {
		return err
	}
	fmt.Println("snapshots")
	for {
		if _, err := p.SnapshotAll(context.Background(), nil); err != nil {
			return err
		}
		if _, err := p.SnapshotAtOnce(context.Background(), nil); err != nil {
			return err
		}
	}
})

// tracedArgs has the program block in a few ways, and work.
var tracedArgs = []string{
	"--busy", "900", "--max-seconds", "900", "--only", "block,pinvoke-poll,pinvoke-read,sleep,join,monitor-wait",
}

// TestKillTracer kills a process that takes snapshots, again and again, at random moments: with threads stopped, half
// attached, half detached. The target goes on.
func TestKillTracer(t *testing.T) {
	const times = 100
	a := testenv.Start(t, "scenarios", testenv.Options{Args: tracedArgs})
	for range times {
		killOnce(t, a.PID)
		select {
		case <-a.Ended():
			t.Fatalf("the target has ended: %s", a.Stderr())
		default:
		}
	}
	// A thread left stopped would not get here.
	p := livetest.Open(t, a, clrsnap.Options{AlwaysStop: true})
	wrong := brokenWalks(t, p)
	// One busy thread in a great many cannot be walked at that moment (TestSoak).
	for n := 1; n < 3 && len(wrong) > 0; n++ {
		t.Logf("ONCE MORE: %q", wrong)
		wrong = brokenWalks(t, p)
	}
	for _, th := range wrong {
		t.Errorf("afterwards, %s", th)
	}
	p.Close()
	livetest.Untraced(t, a.PID)
	livetest.EndsWell(t, a)
}

// brokenWalks takes a snapshot and describes the threads whose walk did not reach their base.
func brokenWalks(t *testing.T, p *clrsnap.Process) (out []string) {
	t.Helper()
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range snap.Threads {
		if !th.Complete {
			out = append(out, fmt.Sprintf("thread %d %q (%s): %s", th.OSThreadID, th.Name, th.State, th.Error))
		}
	}
	return out
}

func killOnce(t *testing.T, pid int) {
	t.Helper()
	cmd := startSnapshots(t, pid)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	time.Sleep(rand.N(40 * time.Millisecond)) // the random moment
}

// startSnapshots starts a process that takes snapshots until the process is killed.
func startSnapshots(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	cmd := snapshots.Command(pid)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "snapshots\n" {
		cmd.Process.Kill()
		t.Fatalf("the tracer says %q, %v", line, err)
	}
	return cmd
}

// TestStopTracer stops a process that takes snapshots, as Ctrl-Z does, again and again. The target goes on.
func TestStopTracer(t *testing.T) {
	const times = 100
	a := testenv.Start(t, "scenarios", testenv.Options{Args: tracedArgs})
	cmd := startSnapshots(t, a.PID)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for range times {
		time.Sleep(rand.N(20 * time.Millisecond))
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		livetest.Await(t, "our process is stopped", func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			return err == nil && strings.Contains(string(b), "State:\tT")
		})
		livetest.Await(t, "no thread is stopped", func() bool { return len(livetest.Held(t, a.PID)) == 0 })
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	livetest.Await(t, "no thread is traced", func() bool { return len(livetest.Held(t, a.PID)) == 0 })
	livetest.EndsWell(t, a)
}
