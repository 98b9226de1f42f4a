package record_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// TestRecordBadOptions: an error, and nothing is recorded.
func TestRecordBadOptions(t *testing.T) {
	a := testenv.Start(t, "idle", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	for says, o := range map[string]record.Options{
		"a rate of 0.05 samples a second: give a rate between 0.1 and 10000": {Rate: 0.05},
		"a rate of 1e+06 samples a second":                                   {Rate: 1e6},
		"a rate of -1 samples a second":                                      {Rate: -1},
		"a rate of NaN samples a second":                                     {Rate: math.NaN()},
		"a recording of -1s: give a positive duration":                       {Duration: -time.Second},
		"-1 CPUs to sample with: give a share of a CPU":                      {MaxCPU: -1},
		"NaN CPUs to sample with":                                            {MaxCPU: math.NaN()},
		"there is no mode 7 to sample":                                       {Modes: []profile.Mode{profile.CPU, 7}},
	} {
		o.Progress = func(record.Progress) { t.Errorf("%s: it records", says) }
		if o.Duration == 0 {
			o.Duration = time.Second
		}
		r, err := record.Record(context.Background(), p, o)
		if err == nil || r != nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	// MaxCPU can be infinite.
	r := livetest.Recorded(t, p, record.Options{
		Modes: []profile.Mode{profile.Wall}, MaxCPU: math.Inf(1), Duration: 200 * time.Millisecond,
	})
	if len(r.Samples) == 0 {
		t.Errorf("no samples without a limit to clrsnap's CPU time: %v", r.Notes)
	}
	livetest.EndsWell(t, a)
}

// TestRecordEnds: a recording ends with its context, its duration or its target, whichever comes
// first, and keeps all samples until then.
func TestRecordEnds(t *testing.T) {
	for _, modes := range [][]profile.Mode{{profile.CPU}, {profile.Wall}, both} {
		a := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "1"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		const slack = 10 * time.Millisecond
		complete := func(r *profile.Recording, err error, until time.Time) {
			t.Helper()
			if err != nil {
				t.Fatalf("%v: %v", modes, err)
			}
			// On a busy machine the thread may have had a CPU for less than a period.
			ran := slices.Contains(modes, profile.Wall) || r.Cost.TargetCPU > 50*time.Millisecond
			least := until.Sub(r.Start)
			if r.Duration < least || time.Since(r.Start) < r.Duration || ran && len(r.Samples) == 0 ||
				len(r.Modes) != len(modes) || len(r.Processes) != 1 {
				t.Errorf("%v: %v long, not %v, %d samples, %+v of %+v", modes, r.Duration, least, len(r.Samples),
					r.Modes, r.Processes)
			}
			if r.Cost.TargetCPU <= 0 || r.Cost.OwnCPU <= 0 || r.Cost.OwnMemory <= 0 {
				t.Errorf("%v: %+v", modes, r.Cost)
			}
		}
		const long = 300 * time.Millisecond
		r := livetest.Recorded(t, p, record.Options{Modes: modes, Duration: long})
		complete(r, nil, r.Start.Add(long))

		ctx, cancel := context.WithTimeout(context.Background(), long)
		end, _ := ctx.Deadline()
		r, err := record.Record(ctx, p, record.Options{Modes: modes, Duration: time.Hour})
		cancel()
		complete(r, err, end.Add(-slack))

		end = time.Now().Add(long)
		killed := time.AfterFunc(long, func() { _ = syscall.Kill(a.PID, syscall.SIGKILL) })
		complete(livetest.Recorded(t, p, record.Options{Modes: modes}), nil, end.Add(-slack))
		if killed.Stop() {
			t.Errorf("%v: the recording ended before its target did", modes)
		}
		// There is nothing left to record.
		r, err = record.Record(context.Background(), p, record.Options{Modes: modes, Duration: time.Hour})
		if err == nil && len(r.Samples) > 0 {
			t.Errorf("%v: of a process that has ended: %d samples", modes, len(r.Samples))
		}
	}
}

// TestRecordThreads: only the chosen threads, in both modes.
func TestRecordThreads(t *testing.T) {
	a := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "3"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	wanted := livetest.ThreadNamed(t, p, "spin-1").OSThreadID
	var told []record.Progress
	r := livetest.Recorded(t, p, record.Options{
		Modes: both, Rate: 199, Duration: 1700 * time.Millisecond,
		Threads:  func(th *clrsnap.Thread) bool { return th.Name == "spin-1" },
		Progress: func(pr record.Progress) { told = append(told, pr) },
	})

	if len(r.Threads) != 1 || r.Threads[0].OSThreadID != wanted || r.Threads[0].Name != "spin-1" ||
		r.Threads[0].ManagedThreadID == 0 {
		t.Errorf("threads %+v, want %d alone", r.Threads, wanted)
	}
	// On a busy machine the thread gets a part of a CPU.
	for m, all := range map[profile.Mode]time.Duration{profile.CPU: r.Cost.TargetCPU / 3, profile.Wall: r.Duration} {
		const rest = 500 * time.Millisecond // CPU samples, and turns after the end
		if got := time.Duration(r.Weight(m)); got < all/4 || got > r.Duration+rest {
			t.Errorf("%v: %v of %v", m, got, all)
		}
	}
	for _, n := range r.Notes {
		if strings.Contains(n, "of the used CPU time") {
			t.Errorf("a note about the threads that were not wanted: %s", n)
		}
	}
	checkProgress(t, told, r)
	livetest.EndsWell(t, a)
}

func checkProgress(t *testing.T, told []record.Progress, r *profile.Recording) {
	t.Helper()
	if len(told) < 3 {
		t.Fatalf("%d reports in %v", len(told), r.Duration)
	}
	for i := 1; i < len(told); i++ {
		x, y := told[i-1], told[i]
		if y.Elapsed <= x.Elapsed || y.Samples < x.Samples || y.Broken < x.Broken || y.Lost < x.Lost {
			t.Errorf("report %d %+v after %+v", i, y, x)
		}
		if y.TargetCPU <= 0 || y.TargetCPU > 64 {
			t.Errorf("report %d: the target uses %v processors", i, y.TargetCPU)
		}
	}
	last, samples := told[len(told)-1], 0
	for _, m := range r.Modes {
		samples += m.Samples
	}
	if last.Samples != samples || last.Elapsed != r.Duration || last.Threads < 3 || last.Samples <= told[0].Samples {
		t.Errorf("last %+v of %d samples in %v", last, samples, r.Duration)
	}
}

// TestRecordBlocked: the samples of blocked threads have the stacks of a snapshot, with the same
// lines, say that the threads wait, and stand for all of the time.
func TestRecordBlocked(t *testing.T) {
	layer.Live(t)
	a := testenv.Start(t, "scenarios", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{Lines: true})
	blocked := map[int]string{}
	for name, s := range a.Stacks {
		blocked[s.TID] = name
	}
	if len(blocked) < 60 {
		t.Fatalf("%d blocked threads", len(blocked))
	}
	stacks := map[string][]string{}
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range snap.Threads {
		th := &snap.Threads[i]
		if name, ok := blocked[th.OSThreadID]; ok {
			stacks[name] = displayNames(th)
		}
	}
	// Some threads were stopped for the snapshot. Each goes back to sleep when the thread gets a CPU.
	for tid, name := range blocked {
		livetest.Await(t, name+" to sleep", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", a.PID, tid))
			return err == nil && strings.Contains(string(stat), ") S ")
		})
	}
	r := livetest.Recorded(t, p, record.Options{
		Modes: []profile.Mode{profile.Wall}, MaxCPU: 2, Duration: 1500 * time.Millisecond,
	})
	weights := checkBlocked(t, r, blocked, stacks)
	for name := range a.Stacks {
		if got := weights[name]; (got - r.Duration).Abs() > 50*time.Millisecond+r.Duration/20 {
			t.Errorf("%s: samples stand for %v of %v", name, got, r.Duration)
		}
	}
	livetest.EndsWell(t, a)
}

// displayNames are the names of a thread's frames as in recordings, leaf first.
func displayNames(th *snapshot.Thread) []string {
	var out []string
	for _, f := range th.Frames {
		name := f.Display
		if name == "" {
			name = "[" + f.Module + "]"
		}
		out = append(out, name+lineText(f.Line))
	}
	return out
}

// lineText is a frame's line as in failures.
func lineText(l *snapshot.SourceLine) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf(" %s:%d:%d %v", l.File, l.Line, l.Column, l.Approximate)
}

// checkBlocked compares every sample of a blocked thread, and returns the times of the samples.
func checkBlocked(t *testing.T, r *profile.Recording, blocked map[int]string,
	stacks map[string][]string) map[string]time.Duration {
	t.Helper()
	weights := map[string]time.Duration{}
	for i := range r.Samples {
		x := &r.Samples[i]
		name, ok := blocked[r.Threads[x.Thread].OSThreadID]
		if !ok {
			continue
		}
		weights[name] += time.Duration(x.Weight)
		var got []string
		for l := range r.Stack(x.Node) {
			f := &r.Functions[l.Function]
			if slices.ContainsFunc([]string{"[Monitor.", "[SemaphoreSlim.", "[WaitHandle.", "[Thread."},
				func(s string) bool { return strings.HasPrefix(f.Display, s) }) {
				continue // only recordings have a frame for the lock of a blocked thread
			}
			got = append(got, f.Display+lineText(r.SourceLine(l)))
		}
		if x.State != profile.Waiting || x.Incomplete || r.Threads[x.Thread].Name != name ||
			!slices.Equal(got, stacks[name]) {
			t.Fatalf("%s %q: %v, incomplete %v:\n\t%s\nwant\n\t%s",
				name, r.Threads[x.Thread].Name, x.State, x.Incomplete,
				strings.Join(got, "\n\t"), strings.Join(stacks[name], "\n\t"))
		}
	}
	return weights
}

// TestRecordBudget: with little of a processor to spend, threads are sampled less often, the recording
// says so, and the samples still stand for all of the time.
func TestRecordBudget(t *testing.T) {
	layer.Live(t)
	a := testenv.Start(t, "scenarios", testenv.Options{Args: []string{"--busy", "300", "--workers", "fib,strings"}})
	p := livetest.Open(t, a, clrsnap.Options{AlwaysStop: true})
	const share = 0.01
	r := livetest.Recorded(t, p, record.Options{
		Modes: []profile.Mode{profile.Wall}, MaxCPU: share, Duration: 4 * time.Second,
	})
	s, _ := r.Mode(profile.Wall)
	t.Logf("got %.3g of %g a second; we used %v in %v", s.Got, s.Rate, r.Cost.OwnCPU, r.Duration)
	if s.Got <= 0 || s.Got > s.Rate/2 {
		t.Errorf("got %g of %g samples a second, with %g of a CPU", s.Got, s.Rate, share)
	}
	if !slices.ContainsFunc(r.Notes, func(n string) bool {
		return strings.Contains(n, "Threads that did not stay blocked were sampled") &&
			strings.Contains(n, "more than 1 % of a CPU")
	}) {
		t.Errorf("no note says so: %q", r.Notes)
	}
	weights, seen := map[string]time.Duration{}, map[string]int{}
	for i := range r.Samples {
		x := &r.Samples[i]
		weights[r.Threads[x.Thread].Name] += time.Duration(x.Weight)
		seen[r.Threads[x.Thread].Name]++
	}
	for name, got := range weights {
		if _, ok := a.Stacks[name]; ok && (got-r.Duration).Abs() > r.Duration/20 {
			t.Errorf("%q: %d samples stand for %v of %v", name, seen[name], got, r.Duration)
		}
	}
	for name := range a.Stacks {
		if seen[name] == 0 {
			t.Errorf("%q was not sampled", name)
		}
	}
	livetest.EndsWell(t, a)
}

// TestRecordRenamed: a thread that gets its name during the recording has the name in the end, and is
// chosen by the name from then on.
func TestRecordRenamed(t *testing.T) {
	a := testenv.Start(t, "begin", testenv.Options{Args: []string{"--late", "late-name"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	tid := livetest.ThreadNamed(t, p, "early").OSThreadID
	ctx, end := context.WithTimeout(context.Background(), livetest.Hang)
	defer end()
	begun := make(chan bool, 1)
	go func() {
		<-begun
		a.Ask("rename")
		end()
	}()
	r, err := record.Record(ctx, p, record.Options{Modes: both, Progress: once(begun)})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Threads, func(th profile.RecordedThread) bool { return th.OSThreadID == tid })
	if i < 0 || r.Threads[i].Name != "late-name" {
		t.Errorf("thread %d is not called late-name: %+v", tid, r.Threads)
	}
	livetest.EndsWell(t, a)
}

// TestRecordRenamedChosen: as TestRecordRenamed, for a recording of the new name
// alone.
func TestRecordRenamedChosen(t *testing.T) {
	a := testenv.Start(t, "begin", testenv.Options{Args: []string{"--late", "late-name"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	begun, renamed := make(chan bool, 1), make(chan time.Time, 1)
	ctx, end := context.WithTimeout(context.Background(), livetest.Hang)
	defer end()
	progress := once(begun)
	go func() {
		<-begun
		renamed <- time.Now()
		a.Ask("rename")
	}()
	// The name is noticed within two seconds; then the test waits for a sample in both modes.
	r, err := record.Record(ctx, p, record.Options{
		Modes: both, Threads: func(th *clrsnap.Thread) bool { return th.Name == "late-name" },
		Progress: func(pr record.Progress) {
			if progress(pr); pr.Samples >= 100 {
				end()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := <-renamed
	if len(r.Threads) != 1 || r.Threads[0].Name != "late-name" {
		t.Fatalf("%+v", r.Threads)
	}
	for _, m := range both {
		if got, most := time.Duration(r.Weight(m)), r.Start.Add(r.Duration).Sub(at)+50*time.Millisecond; got == 0 ||
			got > most {
			t.Errorf("%v: it has its name for %v at most, sampled %v", m, most, got)
		}
	}
	livetest.EndsWell(t, a)
}

// once tells that a recording has begun, by its first report.
func once(begun chan<- bool) func(record.Progress) {
	told := false
	return func(record.Progress) {
		if !told {
			begun <- true
		}
		told = true
	}
}

// TestRecordDeep: the rest of a stack deeper than the kernel's copy is read later, as long as the rest
// cannot have changed.
func TestRecordDeep(t *testing.T) {
	const depth = 4000
	a := testenv.Start(t, "spin", testenv.Options{Args: []string{"--threads", "2", "--depth", "4000"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	var samples, repaired, broken int
	testenv.UntilSeen(t, func() string {
		r := livetest.Recorded(t, p, record.Options{Rate: 199, Duration: 1500 * time.Millisecond})
		checkDeep(t, r, depth)
		s, _ := r.Mode(profile.CPU)
		samples, repaired, broken = samples+s.Samples, repaired+s.Repaired, broken+s.Broken
		if samples < 50 {
			return fmt.Sprintf("50 samples, but %d", samples)
		}
		return ""
	})
	if repaired < samples*9/10 || broken > samples/100 {
		t.Errorf("%d samples, %d repaired, %d broken", samples, repaired, broken)
	}
	livetest.EndsWell(t, a)
}

func checkDeep(t *testing.T, r *profile.Recording, depth int) {
	t.Helper()
	for i := range r.Samples {
		x := &r.Samples[i]
		if r.Function(x.Node) == nil || x.Incomplete {
			continue
		}
		if n := framesOf(r, x, "Spin.Program.Descend"); n != 0 && n != depth {
			t.Fatalf("a stack with %d frames of %d", n, depth)
		}
	}
	if got := spentIn(r, profile.CPU, "Spin.Program.Mix")[0]; got < time.Duration(r.Weight(profile.CPU))*9/10 {
		t.Errorf("%v of %v are in what it spends its time with", got, time.Duration(r.Weight(profile.CPU)))
	}
}
