package cost

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/testenv"
)

// A workload is a program of testdata/apps with typical work.
type workload struct {
	name, app string
	args      []string
	path      string // that wrk asks; "": the program works by itself
	what      string
	unit      string // of its count
}

var (
	webLoad   = workload{"web", "web", nil, "/orders/17", "Kestrel answers with JSON, after one await", "requests"}
	workloads = []workload{
		{"handover", "handover", nil, "", "Two pairs of threads hand something over", "handovers"},
		{
			"crowd", "spin", []string{"--threads", "2", "--idle", "3000"}, "",
			"Two threads compute, 3,000 wake up every one to three seconds", "units",
		},
		{"computing", "busy", nil, "", "50 threads compute", "units"},
	}
)

// longWindows are for recordings: a web server is not steady, and the first second is another matter.
var longWindows = windows{time.Second, 4 * time.Second}

// longest is how many seconds a program lives if nobody ends the program.
const longest = "14400"

func (l *workload) start(b *testing.B, runtime string) (*testenv.App, *subject) {
	b.Helper()
	args := append([]string{"--max-seconds", longest}, l.args...)
	a := testenv.Start(b, l.app, testenv.Options{Runtime: runtime, Args: args})
	s := subjectOf(b, a)
	if l.path != "" {
		s.url = a.Ask("url")[0] + l.path
	}
	return a, s
}

// BenchmarkRecordCost measures how much less programs do while recorded. Recorder and program
// share the CPUs. Each phase with a recorder is compared with a phase before and a phase after
// without a recorder: the rest of the machine changes slowly. The floor is perf, which walks
// no stack of .NET frames and names no frame. Aims: at most 1 % lost at 99 Hz, 3 % at 999 Hz.
func BenchmarkRecordCost(b *testing.B) {
	exe := livetest.Command(b)
	b.Run(webLoad.name, func(b *testing.B) {
		needsWrk(b)
		for _, r := range testenv.AspNetRuntimes(b) {
			if r.Runtime != "net10" { // 10.0.14 is also a net10
				b.Run(r.Version, func(b *testing.B) { webLoad.measure(b, exe, r.Runtime) })
			}
		}
	})
	for _, l := range workloads {
		b.Run(l.name, func(b *testing.B) { l.measure(b, exe, testenv.DefaultRuntime) })
	}
}

func needsWrk(b *testing.B) {
	b.Helper()
	if _, err := exec.LookPath("wrk"); err != nil {
		b.Skip("SKIPPED, NOTHING WAS MEASURED: there is no wrk: run scripts/get-tools.sh bench")
	}
}

// startWeb starts the web server on the newest .NET and the load, and describes the server's work.
func startWeb(b *testing.B) (a *testenv.App, s *subject, head string) {
	b.Helper()
	needsWrk(b)
	all := testenv.AspNetRuntimes(b)
	a, s = webLoad.start(b, all[len(all)-1].Runtime)
	s.warmUp(b)
	return a, s, webLoad.describe(b, s)
}

// warmUp has the program work while the runtime compiles code, and compiles it better.
func (s *subject) warmUp(b *testing.B) {
	b.Helper()
	for range 3 {
		s.phase(b, nil)
	}
}

func (l *workload) measure(b *testing.B, exe, runtime string) {
	a, s := l.start(b, runtime)
	s.windows = longWindows
	ways := recordWays(b, exe)
	s.warmUp(b)
	head := l.describe(b, s)
	defer func() { // of the figures so far, should something fail
		reportWays(b, head+" .NET "+runtimeOf(ways)+"."+longWindows.compared(), l.unit, ways)
	}()
	s.compareWays(b, ways)
	livetest.EndsWell(b, a)
}

// describe describes the work of the program without an observer.
func (l *workload) describe(b *testing.B, s *subject) string {
	b.Helper()
	s.keepAsking(b)
	before, start := switches(b, s.pid), time.Now()
	p := s.measure(b, nil)
	each := float64(switches(b, s.pid)-before) / time.Since(start).Seconds()
	return fmt.Sprintf("%s: %s %s and %s context switches a second, with %.2f CPUs.",
		l.what, grouped(p.perSecond), l.unit, grouped(each), p.cpuPerUnit*p.perSecond)
}

// switches is how often the kernel has switched away from the threads of a process.
func switches(b *testing.B, pid int) (n int64) {
	b.Helper()
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(tasks)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		text, _ := os.ReadFile(tasks + "/" + e.Name() + "/status") // empty if the thread has ended
		for line := range strings.Lines(string(text)) {
			if _, number, ok := strings.Cut(line, "ctxt_switches:"); ok {
				times, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
				if err != nil {
					b.Fatalf("%q: %v", line, err)
				}
				n += times
			}
		}
	}
	return n
}

// runtimeOf is the version of .NET, as clrsnap has seen it.
func runtimeOf(ways []*way) string {
	for _, w := range ways {
		if v := w.seen.Runtime; v != "" {
			return v
		}
	}
	return "of an unknown version"
}

// recordWays are the ways that -ways chooses.
func recordWays(b *testing.B, exe string) []*way {
	b.Helper()
	ways := []*way{
		{key: "nothing", name: "nothing"},
		recordWay("cpu-99", exe, "--mode", "cpu", "-r", "99"),
		recordWay("default", exe),
		recordWay("cpu-99-async-never", exe, "--mode", "cpu", "-r", "99", "--async=never"),
		recordWay("default-async-never", exe, "--async=never"),
		recordWay("cpu-999", exe, "--mode", "cpu", "-r", "999"),
	}
	ways = append(ways, takenWay(99), takenWay(999), busyWay(5))
	if _, err := exec.LookPath("perf"); err != nil {
		b.Log("NO FLOOR WAS MEASURED: there is no perf: run scripts/get-tools.sh bench")
	} else {
		ways = append(ways, floorWay(99), floorWay(999))
	}
	return wanted(b, ways...)
}

// recordWay records with some flags.
func recordWay(key, exe string, flags ...string) *way {
	name := strings.Join(append([]string{"`clrsnap record"}, flags...), " ") + "`"
	return &way{key: key, name: name, start: func(b *testing.B, pid int) *observer.Observer {
		return observer.Recorder(b, exe, pid, flags...)
	}}
}
