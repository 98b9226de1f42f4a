package cost

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// A crowd is a program with many threads, and the command that shows the threads.
type crowd struct {
	threads int
	flags   []string
	limit   int // KB of memory that is no page of a file
}

func (m *crowd) command(exe string, a *testenv.App) *exec.Cmd {
	return exec.Command(exe, append([]string{"stack", strconv.Itoa(a.PID)}, m.flags...)...)
}

// manyThreads are the cases for the memory of the command.
var manyThreads = []crowd{
	{20, nil, 19 << 10}, {20, []string{"--stop-all"}, 19 << 10},
	{1000, nil, 29 << 10}, {1000, []string{"--stop-all"}, 29 << 10}, {1000, []string{"--json"}, 29 << 10},
}

// TestMemory bounds the command's own memory, with room for differences between machines. The pages of the command's
// file do not count: how many of them are mapped depends on how the file lies in the page cache. Beside other
// processes, the command may have to copy a thread again while the garbage collector has not yet collected the earlier
// copies: so the least of a few runs counts.
func TestMemory(t *testing.T) {
	layer.Live(t)
	command := livetest.Command(t)
	apps := map[int]*testenv.App{}
	for _, m := range manyThreads {
		a := apps[m.threads]
		if a == nil {
			a = testenv.Start(t, "crowd", testenv.Options{Args: []string{"--threads", strconv.Itoa(m.threads)}})
			apps[m.threads] = a
		}
		least := 0
		for try := 0; try < 5 && (least == 0 || least > m.limit); try++ {
			r := livetest.RunMeasured(t, m.command(command, a))
			for n := 0; r.Status == 0 && r.Own == 0 && n < 50; n++ { // too busy a machine to look at so short a run
				r = livetest.RunMeasured(t, m.command(command, a))
			}
			t.Logf("%d threads %v: %d of %d KB, %v of CPU time", m.threads, m.flags, r.Own, r.Peak, r.CPU)
			if r.Status != 0 || r.Own == 0 {
				t.Fatalf("%d threads %v: status %d %s, %d KB", m.threads, m.flags, r.Status, r.Stderr, r.Own)
			}
			if least == 0 || r.Own < least {
				least = r.Own
			}
		}
		if least > m.limit {
			t.Errorf("%d threads %v: %d KB of memory, want %d at most", m.threads, m.flags, least, m.limit)
		}
	}
	for _, a := range apps {
		livetest.EndsWell(t, a)
	}
}

// BenchmarkManyThreads measures time, memory and CPU time of the command. The floor is the same
// command showing its version.
func BenchmarkManyThreads(b *testing.B) {
	command := livetest.Command(b)
	for _, m := range manyThreads {
		b.Run(strings.Join(append([]string{strconv.Itoa(m.threads)}, m.flags...), ""), func(b *testing.B) {
			a := testenv.Start(b, "crowd", testenv.Options{Args: []string{"--threads", strconv.Itoa(m.threads)}})
			peak, cpu, floor := 0, time.Duration(0), time.Duration(0)
			for b.Loop() {
				r := livetest.RunMeasured(b, m.command(command, a))
				if r.Status != 0 {
					b.Fatalf("status %d: %s", r.Status, r.Stderr)
				}
				peak, cpu = max(peak, r.Peak), cpu+r.CPU
				floor += livetest.RunMeasured(b, exec.Command(command, "version")).CPU
			}
			b.ReportMetric(float64(peak)/1024, "peak-MB")
			b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms")
			b.ReportMetric(float64(floor)/float64(b.N)/1e6, "floor-cpu-ms")
			livetest.EndsWell(b, a)
		})
	}
}
