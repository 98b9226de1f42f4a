package clrsnap_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/testenv"
)

func init() { roles["snapshot"] = snapshotForever }

// snapshotForever takes snapshots of all threads, in every way there is, until
// it is killed.
func snapshotForever(pid int) error {
	p, err := clrsnap.Open(context.Background(), pid, clrsnap.Options{AlwaysStop: true})
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
}

// TestKillTracer kills a process that takes snapshots, again and again, at random
// moments: with threads stopped, half attached, half detached. The target goes on.
func TestKillTracer(t *testing.T) {
	times := 200
	if testing.Short() {
		times = 50
	}
	a := testenv.Start(t, "scenarios", testenv.Options{Args: []string{"--busy", "900", "--max-seconds", "900", "--only", "block,pinvoke-poll,pinvoke-read,sleep,join,monitor-wait"}})
	for range times {
		killOnce(t, a.PID)
		select {
		case <-a.Ended():
			t.Fatalf("the target has ended: %s", a.Stderr())
		default:
		}
	}
	// A thread that was left stopped would not get here.
	p := open(t, a, clrsnap.Options{AlwaysStop: true})
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
	untraced(t, a.PID)
	endsWell(t, a)
}

// brokenWalks takes a snapshot and describes the threads that were not walked to
// their base.
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

// startSnapshots starts a process that takes snapshots until it is killed.
func startSnapshots(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CLRSNAP_TEST_ROLE=snapshot", "CLRSNAP_TEST_PID="+strconv.Itoa(pid))
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

// TestStopTracer stops a process that takes snapshots, as Ctrl-Z does, again and
// again. The target does not stop with it.
func TestStopTracer(t *testing.T) {
	times := 100
	if testing.Short() {
		times = 25
	}
	a := testenv.Start(t, "scenarios", testenv.Options{Args: []string{"--busy", "900", "--max-seconds", "900", "--only", "block,pinvoke-poll,pinvoke-read,sleep,join,monitor-wait"}})
	cmd := startSnapshots(t, a.PID)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for range times {
		time.Sleep(rand.N(20 * time.Millisecond))
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		await(t, "our process is stopped", func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			return err == nil && strings.Contains(string(b), "State:\tT")
		})
		await(t, "no thread is stopped", func() bool { return len(held(t, a.PID)) == 0 })
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	await(t, "no thread is traced", func() bool { return len(held(t, a.PID)) == 0 })
	endsWell(t, a)
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it is not true that %s", what)
		}
	}
}

// untraced requires that nobody is attached to any thread, and none is stopped.
func untraced(t *testing.T, pid int) {
	t.Helper()
	for _, s := range held(t, pid) {
		t.Error(s)
	}
}

// held describes the threads that are traced or stopped.
func held(t *testing.T, pid int) []string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var out []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if s := string(b); !strings.Contains(s, "TracerPid:\t0\n") || strings.Contains(s, "State:\tt") || strings.Contains(s, "State:\tT") {
			out = append(out, file+":\n"+s)
		}
	}
	return out
}
