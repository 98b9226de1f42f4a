package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

type listedProcess struct {
	PID                    int
	Program, Command       string
	AgeSeconds, CPUSeconds *float64
	RSSBytes               int64
	Threads                int
}

// listedByPS finds a process in the JSON of ps.
func listedByPS(t *testing.T, pid int) listedProcess {
	t.Helper()
	var doc struct{ Processes []listedProcess }
	if err := json.Unmarshal([]byte(good(t, "ps", "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(doc.Processes, func(p listedProcess) bool { return p.PID == pid })
	if i < 0 {
		t.Fatalf("ps does not list %d", pid)
	}
	return doc.Processes[i]
}

// TestProgram: ps shows the program, however the program was started.
func TestProgram(t *testing.T) {
	runtime := testenv.OrdinaryRuntime(t)
	t.Parallel()
	argv := func(change func(args []string) []string) func(*exec.Cmd) {
		return func(c *exec.Cmd) { c.Args = change(c.Args) }
	}
	insert := func(words ...string) func(*exec.Cmd) {
		return argv(func(args []string) []string { return slices.Insert(args, 1, words...) })
	}
	for _, c := range []struct {
		name    string
		prepare func(*exec.Cmd)
	}{
		{"dll", nil},
		{"exec", insert("exec")},
		{"host options", insert("--roll-forward", "Major", "--AdditionalProbingPath", "/no/such.dll")},
		{"renamed", argv(func(args []string) []string { return slices.Replace(args, 0, 1, "a b\x1b[2J") })},
		{"exec with options", argv(func(args []string) []string {
			dll := args[1]
			base := strings.TrimSuffix(dll, ".dll")
			return slices.Insert(args, 1, "exec", "--runtimeconfig", base+".runtimeconfig.json",
				"--additionalprobingpath", "/no/such.dll")
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := testenv.Start(t, "idle", testenv.Options{Runtime: runtime, Prepare: c.prepare})
			checkListed(t, app, "idle.dll")
		})
	}
	t.Run("single-file host with the framework beside it", func(t *testing.T) {
		checkListed(t, testenv.Start(t, "idle", testenv.Options{}), "idle.dll")
	})
	for _, shape := range []testenv.Shape{testenv.AppHost, testenv.SelfContained, testenv.SingleFile} {
		if !slices.Contains(testenv.Shapes(runtime), shape) {
			continue
		}
		t.Run(string(shape), func(t *testing.T) {
			checkListed(t, testenv.Publish(t, "idle", runtime, shape, "").Start(t, testenv.Options{}), "idle")
		})
	}
}

// checkListed checks both outputs of ps for a program with the only argument --stdin.
func checkListed(t *testing.T, app *testenv.App, program string) {
	t.Helper()
	if p := listedByPS(t, app.PID); p.Program != program || !strings.Contains(p.Command, "--stdin") {
		t.Errorf("program %q, want %q; command line %q", p.Program, program, p.Command)
	}
	r := good(t, "ps")
	r.want(t, `^ *`+strconv.Itoa(app.PID)+` .* `+program+` --stdin$`)
	if strings.Contains(r.stdout, "\x1b") {
		t.Errorf("control characters in %q", r.stdout)
	}
}

// TestUsage: age, CPU time, memory and threads of a program agree with the kernel's clocks and folders.
func TestUsage(t *testing.T) {
	layer.Live(t)
	before := time.Now()
	app := testenv.Start(t, "spin", testenv.Options{})
	began := time.Now()
	for livetest.CPU(t, app.PID) < time.Second || time.Since(began) < 1500*time.Millisecond { // shares take a second
		time.Sleep(20 * time.Millisecond)
	}
	cpu, least := livetest.CPU(t, app.PID), time.Since(began)
	p := listedByPS(t, app.PID)
	cpuAfter, most := livetest.CPU(t, app.PID), time.Since(before)
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(app.PID) + "/task/*")
	if err != nil || p.AgeSeconds == nil || p.CPUSeconds == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	const ticks = 50 * time.Millisecond // of 10 ms; user and kernel mode are counted separately
	within := func(name string, seconds float64, least, most time.Duration) {
		t.Helper()
		if d := time.Duration(seconds * 1e9); d < least-ticks || d > most+ticks {
			t.Errorf("%s: %v, want %v to %v", name, d, least, most)
		}
	}
	within("age", *p.AgeSeconds, least, most)
	within("CPU time", *p.CPUSeconds, cpu, cpuAfter)
	if p.RSSBytes < 10<<20 || p.RSSBytes > 4<<30 || p.Threads < len(tasks)-2 || p.Threads > len(tasks)+2 {
		t.Errorf("%d bytes, %d threads; %d are in /proc", p.RSSBytes, p.Threads, len(tasks))
	}
	good(t, "ps").want(t, `^ *PID +USER .* AGE +CPU +MEMORY +THREADS +PROGRAM$`,
		`^ *`+strconv.Itoa(app.PID)+` .* \d+s +\d+\.\d % +[\d.]+ MiB +\d+  spin\.dll --stdin`)
}
