package clrsnap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestAtOnceIsOneInstant holds stacks of the same instant against what is possible at one:
// see testdata/apps/crowd/Ring.cs.
func TestAtOnceIsOneInstant(t *testing.T) { eachRuntime(t, testAtOnceIsOneInstant) }

func testAtOnceIsOneInstant(t *testing.T, runtime string) {
	const rings = 4
	rounds := 200
	if testing.Short() {
		rounds = 30
	}
	a := testenv.Start(t, "crowd", testenv.Options{Runtime: runtime, Args: []string{"--threads", "20", "--timed", "5", "--spin", "1", "--rings", strconv.Itoa(rings)}})
	p := open(t, a, clrsnap.Options{})
	startBusy(t, 2) // so that some have to wait for a processor to stop on
	starvedOnce, torn := 0, 0
	states := map[string]int{}
	for range rounds {
		s, err := p.SnapshotAtOnce(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Missing() > 0 && slices.ContainsFunc(s.Threads, starved) {
			starvedOnce++ // a busy machine, and it says so
			continue
		}
		for i := range s.Threads {
			if th := &s.Threads[i]; strings.HasPrefix(th.Name, "ring-") && !th.Complete {
				t.Fatalf("%s: %s\n%s", th.Name, th.Error, text(th.Frames))
			}
		}
		for ring := range rings {
			state, ok := ringState(s, ring)
			if states[state]++; !ok {
				t.Fatalf("ring %d was never like this: %s", ring, state)
			}
		}
		// One after the other, for which nobody promises it.
		if s, err = p.SnapshotAll(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		for ring := range rings {
			if _, ok := ringState(s, ring); !ok {
				torn++
			}
		}
	}
	t.Logf("%v; one after the other, %d of %d were impossible", states, torn, rounds*rings)
	if starvedOnce > rounds/10 || torn == 0 {
		t.Errorf("of %d instants %d were not complete; one after the other %d were impossible", rounds, starvedOnce, torn)
	}
	endsWell(t, a)
}

// ringState says which members of a ring have the token, and whether that is possible at one
// instant: one, or two neighbours, are in Carry, and at most one of them in Own.
func ringState(s *profile.Snapshot, ring int) (state string, ok bool) {
	const members = 4
	var carry [members]bool
	carrying, owning := 0, 0
	for i := range s.Threads {
		var member int
		if n, _ := fmt.Sscanf(s.Threads[i].Name, fmt.Sprintf("ring-%d-%%d", ring), &member); n == 0 {
			continue
		}
		in := func(method string) bool {
			return slices.ContainsFunc(s.Threads[i].Frames, func(f profile.Frame) bool { return f.Method == "Crowd.Ring."+method })
		}
		if in("Carry") {
			carry[member] = true
			carrying++
		}
		if in("Own") {
			owning++
		}
	}
	neighbours := false
	for i := range carry {
		neighbours = neighbours || carry[i] && carry[(i+1)%members]
	}
	state = fmt.Sprintf("%d carry, %d own", carrying, owning)
	return state, owning <= 1 && (carrying == 1 || carrying == 2 && neighbours)
}

// startBusy keeps every processor of a small machine busy until the end of the test.
func startBusy(tb testing.TB, n int) {
	for range n {
		c := exec.Command("timeout", "900", "sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait() // killed
		})
	}
}

// TestStopAll has the command show a thousand threads of one instant, beside two processes that
// do nothing but use processors. CLRSNAP_STOPALL is how many times (make stopall).
func TestStopAll(t *testing.T) {
	times := 5
	if n, err := strconv.Atoi(os.Getenv("CLRSNAP_STOPALL")); err == nil {
		times = n
	}
	const threads = 1000
	command := buildCommand(t)
	a := testenv.Start(t, "crowd", testenv.Options{Args: []string{"--threads", strconv.Itoa(threads), "--timed", "20", "--spin", "2", "--rings", "2", "--max-seconds", "3600"}})
	startBusy(t, 2)
	var held samples
	var stopped []int
	for range times {
		r := runMeasured(t, exec.Command(command, "stack", strconv.Itoa(a.PID), "--stop-all", "--json"))
		var doc struct {
			Pauses   struct{ MaxMicroseconds float64 }
			Unlisted int
			Threads  []struct {
				Name, Error string
				Complete    bool
				Pause       float64 `json:"pauseMicroseconds"`
				Frames      []struct{ Method string }
			}
		}
		if err := json.Unmarshal(r.stdout, &doc); err != nil {
			t.Fatalf("%v: status %d: %s", err, r.status, r.stderr)
		}
		blocked, n := 0, 0
		for _, th := range doc.Threads {
			if !th.Complete || len(th.Frames) == 0 || th.Error != "" {
				t.Errorf("%s: %d frames: %s", th.Name, len(th.Frames), th.Error)
			}
			if th.Pause > 0 {
				n++
			}
			for _, f := range th.Frames {
				if f.Method == "Crowd.Program.Block" {
					blocked++
				}
			}
		}
		if r.status != 0 || r.stderr != "" || blocked != threads || doc.Unlisted != 0 {
			t.Errorf("status %d, %q: %d of %d blocked threads, %d unlisted", r.status, r.stderr, blocked, threads, doc.Unlisted)
		}
		held = append(held, time.Duration(doc.Pauses.MaxMicroseconds*float64(time.Microsecond)))
		stopped = append(stopped, n)
	}
	slices.Sort(stopped)
	t.Logf("%d times; of about %d threads %d had to be stopped (median), %d at most; held for p50 %.1f ms, max %.1f ms",
		times, threads, stopped[len(stopped)/2], stopped[len(stopped)-1], held.at(50)/1e6, held.at(99)/1e6)
	endsWell(t, a)
}

// measured is what a run of the command left, and took.
type measured struct {
	stdout []byte
	stderr string
	status int
	peak   int // memory, in KB
	cpu    time.Duration
}

// runMeasured runs a command. The kernel's own maximum of a process's memory (ru_maxrss)
// is no less than what its parent had when it started it, so it is read from the process.
func runMeasured(tb testing.TB, c *exec.Cmd) measured {
	tb.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	var r measured
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // looked at below
	}()
	for running := true; running; {
		r.peak = max(r.peak, peakMemory(c.Process.Pid))
		select {
		case <-ended:
			running = false
		case <-time.After(time.Millisecond):
		}
	}
	r.stdout, r.stderr, r.status = out.Bytes(), errs.String(), c.ProcessState.ExitCode()
	r.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return r
}

// peakMemory is the most memory that a process has had since it was executed, in KB; 0 if
// it has ended, or is not executed yet.
func peakMemory(pid int) (kb int) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if self, _ := os.Executable(); err != nil || exe == self {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	if _, rest, ok := strings.Cut(string(b), "VmHWM:"); ok {
		_, _ = fmt.Sscan(rest, &kb) // 0 then
	}
	return kb
}

// manyThreads are what the memory of the command is measured with.
var manyThreads = []struct {
	threads int
	flags   []string
	limit   int // KB of memory
}{
	{20, nil, 30 << 10}, {20, []string{"--stop-all"}, 30 << 10},
	{1000, nil, 44 << 10}, {1000, []string{"--stop-all"}, 48 << 10}, {1000, []string{"--json"}, 60 << 10},
}

// TestMemory bounds the memory of the command, with room for what differs between machines.
func TestMemory(t *testing.T) {
	command := buildCommand(t)
	apps := map[int]*testenv.App{}
	for _, m := range manyThreads {
		a := apps[m.threads]
		if a == nil {
			a = testenv.Start(t, "crowd", testenv.Options{Args: []string{"--threads", strconv.Itoa(m.threads)}})
			apps[m.threads] = a
		}
		r := runMeasured(t, exec.Command(command, append([]string{"stack", strconv.Itoa(a.PID)}, m.flags...)...))
		t.Logf("%d threads %v: %d KB, %v of a processor", m.threads, m.flags, r.peak, r.cpu)
		if r.status != 0 || r.peak == 0 || r.peak > m.limit {
			t.Errorf("%d threads %v: status %d %s, %d KB of memory, want %d at most", m.threads, m.flags, r.status, r.stderr, r.peak, m.limit)
		}
	}
	for _, a := range apps {
		endsWell(t, a)
	}
}

// BenchmarkManyThreads measures time, memory and processor time of the command. The floor
// beside it is the same command showing its version.
func BenchmarkManyThreads(b *testing.B) {
	command := buildCommand(b)
	for _, m := range manyThreads {
		b.Run(strings.Join(append([]string{strconv.Itoa(m.threads)}, m.flags...), ""), func(b *testing.B) {
			a := testenv.Start(b, "crowd", testenv.Options{Args: []string{"--threads", strconv.Itoa(m.threads)}})
			peak, cpu, floor := 0, time.Duration(0), time.Duration(0)
			for b.Loop() {
				r := runMeasured(b, exec.Command(command, append([]string{"stack", strconv.Itoa(a.PID)}, m.flags...)...))
				if r.status != 0 {
					b.Fatalf("status %d: %s", r.status, r.stderr)
				}
				peak, cpu = max(peak, r.peak), cpu+r.cpu
				floor += runMeasured(b, exec.Command(command, "version")).cpu
			}
			b.ReportMetric(float64(peak)/1024, "peak-MB")
			b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms")
			b.ReportMetric(float64(floor)/float64(b.N)/1e6, "floor-cpu-ms")
			endsWell(b, a)
		})
	}
}
