package perfevent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

const (
	hang  = 10 * time.Minute // a test's time limit
	roomy = 32 << 20         // bytes of buffers, for tests that must lose nothing on a busy machine
)

// need skips the test where the kernel does not let us sample.
func need(tb testing.TB) {
	tb.Helper()
	e, err := Open(Options{PID: os.Getpid()})
	if err == nil {
		e.Close()
		return
	}
	if !errors.Is(err, ErrUnavailable) {
		tb.Fatal(err)
	}
	layer.Lacking(tb, err.Error())
}

// target is a running testdata/target.c.
type target struct {
	tb    testing.TB
	cmd   *exec.Cmd
	pid   int
	stdin io.WriteCloser
	lines chan string
	kept  []string // lines that nobody has asked for yet: threads speak in any order

	a, b [2]uint64 // address ranges of burn_a and burn_b
}

var targetDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "perfevent")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) // another user executes the files in it
})

// targetPath compiles the program, once.
func targetPath(tb testing.TB) string {
	tb.Helper()
	dir, err := targetDir()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, "target")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	out, err := exec.Command(testenv.CC(tb), "-O0", "-fno-omit-frame-pointer", "-pthread", "-o", path,
		"testdata/target.c").CombinedOutput()
	if err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return path
}

func start(tb testing.TB, commands string) *target {
	tb.Helper()
	need(tb)
	return startPath(tb, targetPath(tb), commands)
}

func startPath(tb testing.TB, path, commands string) *target {
	tb.Helper()
	t := &target{tb: tb, cmd: exec.Command(path, commands), lines: make(chan string, 1000)}
	stdin, err := t.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := t.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := t.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	t.pid, t.stdin = t.cmd.Process.Pid, stdin
	tb.Cleanup(t.end)
	go func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			t.lines <- s.Text()
		}
		close(t.lines)
	}()
	t.scan("burn_a %d %d", &t.a[0], &t.a[1])
	t.scan("burn_b %d %d", &t.b[0], &t.b[1])
	return t
}

func (t *target) end() {
	t.stdin.Close()
	_ = t.cmd.Process.Kill()
	_ = t.cmd.Wait()
}

func (t *target) command(c string) {
	t.tb.Helper()
	if _, err := io.WriteString(t.stdin, c); err != nil {
		t.tb.Fatal(err)
	}
}

// scan finds a line of a form.
func (t *target) scan(format string, args ...any) {
	t.tb.Helper()
	has := func(line string) bool {
		n, err := fmt.Sscanf(line, format, args...)
		return err == nil && n == len(args)
	}
	if i := slices.IndexFunc(t.kept, has); i >= 0 {
		t.kept = slices.Delete(t.kept, i, i+1)
		return
	}
	late := time.After(hang)
	for {
		select {
		case line, ok := <-t.lines:
			if !ok {
				t.tb.Fatalf("the target ended before it said %q", format)
			}
			if has(line) {
				return
			}
			t.kept = append(t.kept, line)
		case <-late:
			t.tb.Fatalf("the target does not say %q", format)
		}
	}
}

// number is the target's number after a word.
func (t *target) number(word string) int {
	t.tb.Helper()
	var n int
	t.scan(word+" %d", &n)
	return n
}

func (t *target) burner() (tid, a int) {
	t.tb.Helper()
	t.scan("thread %d %d", &tid, &a)
	return tid, a
}

func open(tb testing.TB, o Options) *Events {
	tb.Helper()
	e, err := Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	return e
}

// readUntil reads until done returns true, or for too long.
func readUntil(tb testing.TB, e *Events, visit func(*Record), done func() bool) {
	tb.Helper()
	for end := time.Now().Add(hang); !done(); {
		if time.Now().After(end) {
			tb.Fatalf("what the test waits for has not been seen after %v: %+v", hang, e.Stats())
		}
		if _, err := e.Wait(5 * time.Millisecond); err != nil {
			tb.Fatal(err)
		}
		if err := e.Read(visit); err != nil {
			tb.Fatal(err)
		}
	}
}

// eachScope runs a test in every scope.
func eachScope(t *testing.T, test func(*testing.T, Scope)) {
	t.Helper()
	for s := Filtered; s <= PerThread; s++ {
		t.Run(s.String(), func(t *testing.T) { test(t, s) })
	}
}

func within(ip uint64, r [2]uint64) bool { return ip >= r[0] && ip < r[1] }

// cpuTime is a thread's CPU time, by the kernel's own account.
func cpuTime(tb testing.TB, pid, tid int) time.Duration {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
	if err != nil {
		tb.Fatal(err)
	}
	var ns int64
	if _, err := fmt.Sscan(string(b), &ns); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ns)
}

// usage is the CPU time of threads. It is read four times: before and after sampling begins,
// before and after sampling ends. Between two readings the test itself may wait for a CPU.
type usage struct {
	pid   int
	tids  []int
	notes [][]use
}

type use struct {
	time     time.Duration
	switches int
}

func (u *usage) note(tb testing.TB) {
	tb.Helper()
	var now []use
	for _, tid := range u.tids {
		now = append(now, use{cpuTime(tb, u.pid, tid), switches(tb, u.pid, tid)})
	}
	u.notes = append(u.notes, now)
}

// bounds are the bounds on the i-th thread's samples. A twentieth may be missing or too much, and
// on a busy machine a period for each switch away from the CPU: the kernel stops and restarts the
// timer there.
func (u *usage) bounds(i int, period time.Duration) (least, most float64) {
	n := u.notes
	slack := float64(n[3][i].switches - n[0][i].switches)
	least = float64((n[2][i].time-n[1][i].time)/period)*0.95 - slack
	most = float64((n[3][i].time-n[0][i].time)/period)*1.05 + slack
	return least, most
}

// check compares the samples of the i-th thread with its CPU time.
func (u *usage) check(tb testing.TB, i, samples int, period time.Duration, slack float64) {
	tb.Helper()
	least, most := u.bounds(i, period)
	if got := float64(samples); got < least-slack || got > most+slack {
		tb.Errorf("thread %d has %v samples, not %.0f to %.0f: %+v", u.tids[i], samples, least-slack,
			most+slack, u.notes)
	}
}

// switches is the number of a thread's switches away from its CPU.
func switches(tb testing.TB, pid, tid int) int {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		tb.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "voluntary_ctxt_switches" || name == "nonvoluntary_ctxt_switches" {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				tb.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// end kills a process that the target has started. Nobody else waits for the process.
func end(tb testing.TB, pid int) {
	tb.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		tb.Error(err)
	}
}

// StackBytes is the number of copied bytes of each stack.
func (e *Events) StackBytes() int {
	if e.gen == nil {
		return 0
	}
	return e.gen.stackBytes
}

// BufferBytes is the size of each CPU's ring, possibly less than requested.
func (e *Events) BufferBytes() int { return len(e.rings[0].data) }
