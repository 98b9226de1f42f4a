package cost

import (
	"context"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// BenchmarkVerb measures commands from exec to their last byte, on programs with much to find for each verb. The floor
// executes the same file for its version. "cpu-ms" is the command's CPU time, the figure that counts for why, which
// looks for four seconds.
func BenchmarkVerb(b *testing.B) {
	exe := livetest.Command(b)
	for _, v := range []struct {
		verb, app string
		args      []string // of the program
		flags     []string
		status    int
	}{
		{verb: "stack", app: "waits"}, // 60 threads that wait, each in another way
		{verb: "stack", app: "crowd", args: []string{"--threads", "1000", "--syncblocks", "0"}},
		{verb: "locks", app: "deadlocks", status: 3},
		{verb: "locks", app: "crowd", args: []string{"--threads", "50", "--syncblocks", "1000000"}},
		{verb: "tasks", app: "tasks", args: []string{"--suspended", "400"}}, // more than 10,000 chains
		{verb: "heap", app: "heap", args: []string{"--megabytes", "100"}},
		{verb: "why", app: "deadlocks", status: 0},
		{verb: "why", app: "deadlocks", flags: []string{"--no-agent"}, status: 0},
	} {
		name := v.verb + "/" + v.app
		for _, f := range append(v.args, v.flags...) {
			name += " " + f
		}
		b.Run(name, func(b *testing.B) {
			a := testenv.Start(b, v.app, testenv.Options{Args: v.args})
			var runs, floors, cpu samples
			resident := 0
			for b.Loop() {
				took, m := runVerb(b, v.status, exe,
					append([]string{v.verb, strconv.Itoa(a.PID), "--json"}, v.flags...)...)
				runs, cpu, resident = append(runs, took), append(cpu, m.CPU), max(resident, m.Peak)
				took, _ = runVerb(b, 0, exe, "--version")
				floors = append(floors, took)
			}
			report(b, runs, floors, "ms", "floor-ms", time.Millisecond)
			b.ReportMetric(cpu.at(0)/1e6, "cpu-ms-min")
			b.ReportMetric(float64(resident)/1024, "resident-MB")
		})
	}
}

// runVerb runs a command that has to end with a status.
func runVerb(b *testing.B, status int, exe string, args ...string) (time.Duration, livetest.Measured) {
	b.Helper()
	begun := time.Now()
	m := livetest.RunMeasured(b, exec.Command(exe, args...))
	took := time.Since(begun)
	if m.Status != status || len(m.Stdout) == 0 {
		b.Fatalf("%v: status %d, %d bytes\n%s", args, m.Status, len(m.Stdout), m.Stderr)
	}
	return took, m
}

// BenchmarkAsync measures the time to read the awaiters of the running async methods: snapshots with and without
// awaiters, in turns. The floor is the snapshot without.
func BenchmarkAsync(b *testing.B) {
	a := testenv.Start(b, "tasks", testenv.Options{Args: []string{"--running"}})
	with, without := livetest.Open(b, a, clrsnap.Options{Async: true}), livetest.Open(b, a, clrsnap.Options{})
	take := func(p *clrsnap.Process) (time.Duration, int) {
		start := time.Now()
		s, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			b.Fatal(err)
		}
		took, awaiting := time.Since(start), 0
		for i := range s.Threads {
			for k := range s.Threads[i].Frames {
				if s.Threads[i].Frames[k].Kind == snapshot.Async {
					awaiting++
				}
			}
		}
		return took, awaiting
	}
	var runs, floors samples
	frames := 0
	for b.Loop() {
		took, n := take(with)
		runs, frames = append(runs, took), max(frames, n)
		took, n = take(without)
		if floors = append(floors, took); n > 0 {
			b.Fatalf("%d frames that were not asked for", n)
		}
	}
	if frames == 0 {
		b.Fatal("nothing is awaited")
	}
	report(b, runs, floors, "ms", "floor-ms", time.Millisecond)
	b.ReportMetric(float64(frames), "awaiting")
	b.ReportMetric((runs.at(0)-floors.at(0))/float64(frames)/1e3, "us-awaiting-min")
}
