package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// result is the outcome of a run of the command.
type result struct {
	stdout, stderr string
	status         int // -1: killed by a signal
}

func command(tb testing.TB, args ...string) result {
	tb.Helper()
	return finish(tb, exec.Command("clrsnap", args...))
}

func finish(tb testing.TB, c *exec.Cmd) result {
	tb.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		tb.Fatal(err)
	}
	return result{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// good requires status 0.
func good(tb testing.TB, args ...string) result {
	tb.Helper()
	r := command(tb, args...)
	if r.status != 0 {
		tb.Fatalf("clrsnap %v: status %d: %s", args, r.status, r.stderr)
	}
	return r
}

func (r result) want(tb testing.TB, patterns ...string) {
	tb.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(r.stdout) {
			tb.Errorf("no match for %s in:\n%s", p, r.stdout)
		}
	}
}

func TestIdle(t *testing.T) {
	layer.Check(t)
	testenv.EachOf(t, testenv.Supported(), testIdle)
}

func testIdle(t *testing.T, runtime string) {
	app := testenv.Start(t, "idle", testenv.Options{Runtime: runtime, Args: []string{"--threads", "8", "--pool", "6"}})
	pid := fmt.Sprint(app.PID)

	t.Run("text", func(t *testing.T) {
		r := good(t, "stack", pid)
		r.want(t,
			`^Process `+pid+` · \.NET 1[01]\.`,
			`^Thread `+pid+` .*\(managed 1\) Main · `,
			`^Thread \d+ "idle-3" \(managed \d+\) · waits for ManualResetEvent 0x[0-9a-f]+ \(.*\)$`,
			`^    Idle\.Program\.Step\(int, string\)  idle/Program\.cs:\d+  idle$`,
			`↻ the 2 frames above \d+ times more`,
			`^6 threads with this stack · ThreadPool worker · waits for ManualResetEvent 0x`,
			`^\d+ threads, \d+ stopped`)
		if strings.Contains(r.stdout, "\x1b") || r.stderr != "" {
			t.Errorf("colours or warnings: %q", r.stderr)
		}
	})
	t.Run("full", func(t *testing.T) {
		main := `(?m)^Thread ` + pid + ` .*\(managed 1, 0x[0-9a-f]+\) Main · .* · preemptive$`
		var r result
		testenv.UntilSeen(t, func() string { // the thread may be about to wait
			if r = good(t, "stack", pid, "--full", "--group"); regexp.MustCompile(main).MatchString(r.stdout) {
				return ""
			}
			return main + " in:\n" + r.stdout
		})
		r.want(t,
			`^6 threads with this stack · ThreadPool worker · waits for ManualResetEvent 0x[0-9a-f]+ \(.*\) · `+
				`preemptive$`,
			`^Thread \d+ "\.NET Finalizer" \(managed \d+, 0x[0-9a-f]+\) Finalizer · idle · preemptive$`)
	})
	t.Run("managed", func(t *testing.T) {
		r := good(t, "stack", pid, "--managed", "--thread", "^idle-3$")
		r.want(t, `Idle\.Program\.Block\(\)`, `^1 thread, `)
		if strings.Contains(r.stdout, "libc.so") {
			t.Errorf("native frames in:\n%s", r.stdout)
		}
	})
	t.Run("never", func(t *testing.T) {
		r := good(t, "stack", pid, "--group=never")
		if n := strings.Count(r.stdout, "\nThread "); n < 14 || strings.Contains(r.stdout, "with this stack") {
			t.Errorf("%d threads, want each by itself:\n%s", n, r.stdout)
		}
	})
	t.Run("json", func(t *testing.T) { testJSON(t, app) })
	t.Run("stop-all", func(t *testing.T) {
		good(t, "stack", pid, "--stop-all").want(t, // 0: beside other work, no thread had a CPU for a moment
			`\d+ threads, (0 stopped|\d+ stopped \(pauses: p50 [\d.]+ .s, p99 [\d.]+ .s, max [\d.]+ .s\))`)
	})
	t.Run("ps", func(t *testing.T) {
		good(t, "ps").want(t, `^ *`+pid+`  \S+ +1[01]\.0\.\d+ +(shared|single-file) +\d+s +(-|\d+\.\d %) `+
			`+\d\S* MiB +\d+  idle\.dll --stdin`)
	})
	t.Run("doctor", func(t *testing.T) {
		r := good(t, "doctor", pid)
		r.want(t, `^ok +runtime +\.NET 1[01]\.`, `^ok +contracts +.*Thread c?1`, `^ok +modules`,
			`^ok +stacks +(\d+) of \d+ threads complete`)
		if strings.Contains(r.stdout, "NOT OK") || r.stderr != "" {
			t.Errorf("%s%s", r.stdout, r.stderr)
		}
	})
	t.Run("another user", func(t *testing.T) { testNobody(t, pid) })
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}

func testJSON(t *testing.T, app *testenv.App) {
	r := good(t, "stack", fmt.Sprint(app.PID), "--json")
	var doc struct {
		Process struct {
			PID     int
			Runtime struct{ Version, Path, Shape string }
		}
		CapturedAt time.Time
		Threads    []struct {
			OSThreadID int
			ThreadID   string
			Name       string
			Complete   *bool
			Frames     []struct{ Kind, FunctionID, IP, SP, Method, Display string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Process.PID != app.PID || !strings.HasPrefix(doc.Process.Runtime.Version, "1") ||
		time.Since(doc.CapturedAt) > time.Minute {
		t.Errorf("%+v at %v", doc.Process, doc.CapturedAt)
	}
	found := 0
	for _, th := range doc.Threads {
		if th.Complete == nil || th.Frames == nil {
			t.Errorf("thread %d without complete or frames", th.OSThreadID)
		}
		for _, f := range th.Frames {
			if f.Method == "Idle.Program.Block" && f.Kind == "managed" && strings.HasPrefix(f.FunctionID, "0x") &&
				strings.HasPrefix(f.IP, "0x") {
				found++
			}
		}
	}
	if found != 14 {
		t.Errorf("%d threads in Idle.Program.Block, want 14", found)
	}
}

// A process of another user is listed, with the reason why it cannot be opened.
func testNobody(t *testing.T, pid string) {
	if asNobody("true").Run() != nil {
		t.Skip("SKIPPED: this needs root")
	}
	dir, c, err := nobodysCommand("ps", "--json")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r := finish(t, c)
	if r.status != 0 {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	r.want(t, `"pid":`+pid+`,"user":"root","command":"[^"]*idle\.dll[^"]*",`+
		`"error":"cannot attach to `+pid+`: operation not permitted[^"]*",`+
		`"program":"idle\.dll","ageSeconds":\d[\d.]*,"cpuSeconds":\d[\d.]*,"rssBytes":\d{8,},"threads":\d+`)
}

// A thread that a debugger holds cannot be stopped. Whether all threads are stopped at once or one after the other, the
// status is 1, and the other stacks are shown.
func TestStackMissing(t *testing.T) {
	app := testenv.Start(t, "crowd", testenv.Options{Args: []string{"--threads", "4", "--spin", "1"}})
	pid := fmt.Sprint(app.PID)
	var doc struct {
		Threads []struct {
			OSThreadID int
			Name       string
		}
	}
	if err := json.Unmarshal([]byte(good(t, "stack", pid, "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	spin := 0
	for _, th := range doc.Threads {
		if th.Name == "spin-0" {
			spin = th.OSThreadID
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(spin); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--stop-all"}, {"--json"}, {"--thread", "spin|blocked"},
		{"--stop-all", "--thread", "spin"}} {
		r := command(t, append([]string{"stack", pid}, flags...)...)
		if r.status == 0 && !slices.Contains(flags, "--stop-all") {
			r.want(t, `Crowd\.Program\.Spin\b`) // the thread waited for a CPU: then the kernel has its registers
			continue
		}
		r.says(t, 1, `^clrsnap: the stacks of 1 of \d+ threads are missing, and each thread says why: .*\n$`)
		r.want(t, `already traced: by process `)
		if !slices.Contains(flags, "--json") {
			r.want(t, `, 1 without a stack$`)
		}
	}
	good(t, "stack", pid, "--thread", "blocked")
	good(t, "stack", pid, "--thread", "blocked", "--stop-all")
	// A seized thread is detached only while it is stopped, or when its tracer ends.
	if err := unix.PtraceInterrupt(spin); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(spin, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceDetach(spin); err != nil {
		t.Fatal(err)
	}
	good(t, "stack", pid)
	good(t, "stack", pid, "--stop-all")
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}

// The main thread has ended, and the process goes on: /proc/PID has no memory, files and namespaces any more.
func TestLeaderless(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		app := testenv.Start(t, "idle", testenv.Options{
			Runtime: runtime, Args: []string{"--threads", "4", "--leaderless"},
		})
		pid := fmt.Sprint(app.PID)
		good(t, "stack", pid).want(t, `^Thread \d+ "idle-3" \(managed \d+\) · waits for ManualResetEvent`,
			`^    Idle\.Program\.Step\(int, string\)  idle/Program\.cs:\d+  idle$`)
		good(t, "stack", pid, "--stop-all").want(t, `^Thread \d+ "idle-3" \(managed \d+\) · waits`)
		good(t, "ps").want(t, `^ *`+pid+`  \S+ +1[01]\.0\.\d+ .* [1-9][\d.]* MiB +\d+  idle\.dll --stdin`)
		good(t, "locks", pid).want(t, `ManualResetEvent`)
		good(t, "tasks", pid)
		good(t, "heap", pid).want(t, `  string  System\.Private`)
		file := filepath.Join(t.TempDir(), "r.clrsnap")
		good(t, "record", pid, "--duration", "1s", "-o", file)
		good(t, "record", pid, "--event", "alloc", "--duration", "1s", "-o", file)
		good(t, "view", file)
		r := good(t, "doctor", pid)
		if strings.Contains(r.stdout, "NOT OK") {
			t.Error(r.stdout)
		}
		livetest.EndsWell(t, app)
	})
}

// The target ends in the middle of a snapshot: there is one sentence, and the stacks collected until then.
func TestExitWhileRead(t *testing.T) {
	for i := range 6 {
		app := testenv.Start(t, "idle", testenv.Options{Args: []string{"--threads", "30"}})
		c := exec.Command("clrsnap", "stack", fmt.Sprint(app.PID))
		go func() {
			time.Sleep(time.Duration(3+4*i) * time.Millisecond)
			_ = syscall.Kill(app.PID, syscall.SIGKILL)
		}()
		r := finish(t, c)
		if r.status != 0 && (r.status != 1 || strings.Count(r.stderr, "\n") != 1 ||
			!strings.HasPrefix(r.stderr, "clrsnap: ")) {
			t.Errorf("status %d, stderr %q", r.status, r.stderr)
		}
		t.Logf("after %d ms: status %d, %d bytes, %s", 3+4*i, r.status, len(r.stdout), r.stderr)
	}
}

// Ctrl-C at any moment: the status is 130, or 0 if the signal came too late. The target keeps running.
func TestInterrupt(t *testing.T) {
	app := testenv.Start(t, "idle", testenv.Options{Args: []string{"--threads", "50"}})
	interrupted := 0
	for i := range 20 {
		c := exec.Command("clrsnap", "stack", fmt.Sprint(app.PID))
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(8+2*i) * time.Millisecond)
		_ = c.Process.Signal(syscall.SIGINT) // fails if the command has ended
		_ = c.Wait()
		switch status := c.ProcessState.ExitCode(); {
		case status == 130:
			interrupted++
			if n := strings.Count(errs.String(), "\n"); n != 1 {
				t.Errorf("stderr %q", errs.String())
			}
		case status == -1: // before the command was ready for the signal: a shell makes 130 of that
		case status != 0:
			t.Errorf("status %d: %s", status, errs.String())
		}
	}
	t.Logf("%d of 20 were interrupted", interrupted)
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
}

// BenchmarkStack is the command from exec to its last byte, on a process with 50 threads. The floor is the same program
// with nothing to do.
func BenchmarkStack(b *testing.B) {
	app := testenv.Start(b, "idle", testenv.Options{Args: []string{"--threads", "34", "--pool", "6"}})
	for _, bench := range []struct {
		name string
		args []string
	}{
		{"floor", []string{"version"}},
		{"text", []string{"stack", fmt.Sprint(app.PID)}},
		{"json", []string{"stack", "--json", fmt.Sprint(app.PID)}},
		{"ps", []string{"ps"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				good(b, bench.args...)
			}
		})
	}
}
