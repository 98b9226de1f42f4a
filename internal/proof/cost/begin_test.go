package cost

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/profile"
)

// A beginning is how long a recorder takes until threads are recorded.
type beginning struct {
	way  *way
	idle int // idle threads beside the computing threads

	first, all []float64 // ms until the first computing thread has a sample, and until each of the threads has a sample
	end        []float64 // ms from the signal to the end of the recorder
	cpu        []float64 // per cent of a CPU during the recording
	whole      []float64 // seconds of CPU time from the recorder's start to its end
	memory     int64
	never      int // how often a computing thread had no sample at all
}

// computing is the number of computing threads: a thread for each of two CPUs.
const computing = 2

// BenchmarkRecordBegin measures the time from the start of the command until
// computing threads are in the recording, and what the command uses from then on,
// with and without 3,000 mostly idle threads. The recording says when each sample was
// taken. Aims: 100 ms; idle threads add nothing.
func BenchmarkRecordBegin(b *testing.B) {
	exe := livetest.Command(b)
	var all []*beginning
	for _, idle := range []int{0, 3000} {
		args := []string{"--threads", strconv.Itoa(computing), "--idle", strconv.Itoa(idle)}
		l := workload{name: "crowd", app: "spin", args: args}
		// One program at a time: two programs would compete for the CPUs.
		b.Run(fmt.Sprintf("idle=%d", idle), func(b *testing.B) {
			a, s := l.start(b, "")
			var these []*beginning
			for _, w := range wanted(b, recordWays(b, exe)...) {
				if strings.HasPrefix(w.name, "`clrsnap") {
					these = append(these, &beginning{way: w, idle: idle})
				}
			}
			for i := 0; b.Loop(); i++ {
				for j := range these {
					these[(i+j)%len(these)].measure(b, s)
				}
			}
			livetest.EndsWell(b, a)
			all = append(all, these...)
		})
	}
	reportBeginnings(all)
}

// measure records once.
func (g *beginning) measure(b *testing.B, s *subject) {
	b.Helper()
	started := time.Now()
	o := g.way.start(b, s.pid)
	g.cpu = append(g.cpu, 100*s.measure(b, o).observerCPU)
	told := time.Now()
	seen, err := o.End()
	if err != nil {
		b.Fatal(err)
	}
	g.end = append(g.end, milliseconds(o.Ended.Sub(told)))
	g.memory = max(g.memory, seen.Memory)
	if u, ok := o.Cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		g.whole = append(g.whole, time.Duration(u.Utime.Nano()+u.Stime.Nano()).Seconds())
	}
	first := slices.SortedFunc(maps.Values(firstSamples(seen.Recording, "spin-")), time.Time.Compare)
	if len(first) < computing {
		g.never++
		return
	}
	g.first = append(g.first, milliseconds(first[0].Sub(started)))
	g.all = append(g.all, milliseconds(first[len(first)-1].Sub(started)))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// firstSamples is when the threads with a name prefix had their first CPU samples.
func firstSamples(r *profile.Recording, prefix string) map[string]time.Time {
	first := map[string]time.Time{}
	for i := range r.Samples {
		x := &r.Samples[i]
		name := r.Threads[x.Thread].Name
		if x.Mode != profile.CPU || !strings.HasPrefix(name, prefix) {
			continue
		}
		if at, ok := first[name]; !ok || r.Start.Add(x.At).Before(at) {
			first[name] = r.Start.Add(x.At)
		}
	}
	return first
}

func reportBeginnings(all []*beginning) {
	t := newColumns("recorded by\tthreads that idle\ttimes\tms until the first sample\tmedian\t" +
		"ms until both are sampled\tmedian\tworst\tnever\tCPU % from then on\tms to end\tCPU seconds in all\tMB")
	for _, g := range all {
		t.row("%s\t%d\t%d\t%s\t%s\t%s\t%s\t%.2f\t%d\t%s\t%s\t%s\t%d",
			g.way.name, g.idle, len(g.cpu), spread(g.first), middle(g.first),
			spread(g.all), middle(g.all), slices.Max(append(g.all, 0)), g.never,
			spread(g.cpu), spread(g.end), spread(g.whole), g.memory>>20)
	}
	fmt.Printf("\n\n%s\nTwo threads compute. Times are from the start of the command, which records for %v. "+
		"Values are means ± standard error. A CPU is 100 %%.\n\n%s\n", machine(), settleTime+phaseTime, t)
}

func TestFirstSamples(t *testing.T) {
	start := time.Unix(1000, 0)
	r := &profile.Recording{
		Start:   start,
		Threads: []profile.RecordedThread{{Name: "spin-0"}, {Name: "idle-0"}, {Name: "spin-1"}},
		Samples: []profile.Sample{
			{At: 1, Thread: 0, Mode: profile.Wall}, {At: 2, Thread: 1}, {At: 9, Thread: 0},
			{At: 7, Thread: 2}, {At: 4, Thread: 0}, {At: 8, Thread: 2},
		},
	}
	want := map[string]time.Time{"spin-0": start.Add(4), "spin-1": start.Add(7)}
	if got := firstSamples(r, "spin-"); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
