package shares

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
)

// fullShares is how long a recording must be for its shares to be right within
// two points, whatever chance would allow.
const fullShares = 20 * time.Second

// sharesTime is the length of a recording.
func sharesTime() time.Duration { return layer.Size(8*time.Second, fullShares) }

// TestRecordShares records a program that knows how it spends its time, and
// compares.
func TestRecordShares(t *testing.T) {
	layer.Quiet(t)
	testenv.EachOf(t, supported, testRecordShares)
}

// supported are the runtimes of the short form.
var supported = []string{testenv.DefaultRuntime, testenv.NewestRuntime}

func testRecordShares(t *testing.T, runtime string) {
	d := sharesTime()
	a := startShares(t, runtime)
	p := livetest.Open(t, a, clrsnap.Options{})
	for _, tt := range []struct {
		name  string
		modes []profile.Mode
	}{
		{"cpu", []profile.Mode{profile.CPU}},
		{"wall", []profile.Mode{profile.Wall}},
		{"both", []profile.Mode{profile.CPU, profile.Wall}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			recordUndisturbed(t, a, p, record.Options{Modes: tt.modes, Duration: d}).check(t, tt.modes, d)
		})
	}
	livetest.EndsWell(t, a)
}

// TestRecordBrief records a program whose threads live shorter than a period: chance
// decides about each thread's samples, and each method has its share all the same.
func TestRecordBrief(t *testing.T) {
	layer.Quiet(t)
	d := sharesTime()
	a := testenv.Start(t, "brief", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	s := recordUndisturbed(t, a, p, record.Options{Rate: 499, Duration: d})
	if m, _ := s.r.Mode(profile.CPU); m.Source != profile.FromProcessors {
		t.Fatalf("the samples are from %q, which does not see short-lived threads", m.Source)
	}
	c := count(s.r, profile.CPU, s.truth)
	t.Logf("%s\n%s", livetest.StatsLine(t, s.r, profile.CPU), table(profile.CPU, s.truth, c))
	checkShares(t, profile.CPU, d, s.truth, c)
	checkBroken(t, s.r, profile.CPU)
	pool := place{poolThread, ""}
	truly, sampled := s.truth.spent[pool][profile.CPU], c.places[pool].weight
	if allowed := truly/50 + livetest.ByChance(truly); (truly - sampled).Abs() > allowed {
		t.Errorf("short-lived threads used %v of a processor, sampled %v, allowed %v", truly, sampled, allowed)
	}
	for i := range s.r.Threads {
		if th := &s.r.Threads[i]; th.Name == "" {
			t.Errorf("a thread without a name: %+v", th)
		}
	}
	livetest.EndsWell(t, a)
}

// recordUndisturbed records until a recording can be judged, and skips the test if no recording can.
func recordUndisturbed(t *testing.T, a *testenv.App, p *clrsnap.Process, o record.Options) *shares {
	t.Helper()
	const most = 4
	late := false
	for n := 1; ; n++ {
		s := recordShares(t, a, p, o)
		why := s.disturbed()
		switch {
		case why != "" && n >= most:
			t.Skipf("SKIPPED, NOTHING WAS TESTED: %d recordings were disturbed; in the last one %s", n, why)
		case why != "":
			t.Logf("ONCE MORE: %s", why)
		case !late && s.timersLate(o.Modes):
			late = true
			t.Log(livetest.LateTimer)
		default:
			return s
		}
	}
}

// shares is a recording of the program, and the measurements of the program and the kernel for the same time.
type shares struct {
	r      *profile.Recording
	truth  *truth
	used   time.Duration         // by the program, of processors
	delays map[int]time.Duration // how long threads were ready to run without a processor
	others float64               // processors used by others than the program and us
}

func recordShares(t *testing.T, a *testenv.App, p *clrsnap.Process, o record.Options) *shares {
	t.Helper()
	before, clock, delays, all := askTruth(t, a), livetest.CPU(t, a.PID), runDelays(t, a.PID), livetest.MachineCPU(t)
	r, err := record.Record(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &shares{
		r: r, truth: askTruth(t, a).since(before, r.Duration), used: livetest.CPU(t, a.PID) - clock,
		delays: runDelays(t, a.PID),
	}
	for tid := range s.delays {
		s.delays[tid] -= delays[tid]
	}
	s.others = (livetest.MachineCPU(t) - all - s.used - r.Cost.OwnCPU).Seconds() / r.Duration.Seconds()
	return s
}

// disturbed says what left too little to sample with; empty: nothing.
func (s *shares) disturbed() string {
	if missed := livetest.Missed(s.r); missed > livetest.TooLate {
		return fmt.Sprintf("timers of the CPUs missed %.1f %% of the turns", 100*missed)
	}
	if s.others > livetest.TooBusy {
		return fmt.Sprintf("other programs used %.1f processors", s.others)
	}
	return ""
}

// timersLate reports whether samples differ from the threads' used time, as with late timers.
func (s *shares) timersLate(modes []profile.Mode) bool {
	return slices.ContainsFunc(modes, func(m profile.Mode) bool {
		return len(wrongThreads(m, s.truth, count(s.r, m, s.truth))) > 0
	})
}

func (s *shares) check(t *testing.T, modes []profile.Mode, d time.Duration) {
	t.Helper()
	if s.r.Duration < d || s.r.Duration > d+time.Second {
		t.Errorf("the recording took %v instead of %v", s.r.Duration, d)
	}
	for _, m := range modes {
		c := count(s.r, m, s.truth)
		t.Logf("%s\n%s", livetest.StatsLine(t, s.r, m), table(m, s.truth, c))
		checkShares(t, m, d, s.truth, c)
		for _, wrong := range wrongThreads(m, s.truth, c) {
			t.Error(wrong)
		}
		checkInside(t, m, c)
		checkBroken(t, s.r, m)
		if m == profile.CPU {
			checkCPU(t, s.r, s.used)
		} else {
			checkStates(t, s.truth, c, s.delays)
		}
	}
	for _, n := range s.r.Notes {
		t.Log(n)
	}
}

// points is how far, in percentage points, a share of samples may be from the true
// share: as far as chance explains, but at least two points. Samples at regular
// times of slices of random length scatter less than independent samples, so four
// standard deviations of independent samples are seldom reached.
func points(percent float64, s *weights) float64 {
	share := min(100, percent) / 100
	return max(2, 400*math.Sqrt(share*(1-share)/max(1, s.effective())))
}

// places lists the measured places, threads before their methods.
func places(tr *truth) []place {
	return slices.SortedFunc(maps.Keys(tr.spent), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.method, b.method))
	})
}

// table sets measured times beside sampled times, in per cent of all threads and of the thread.
func table(m profile.Mode, tr *truth, c *counted) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "thread\tmethod\ttruth s\tsampled s\tof all %\tsampled\tof thread %\tsampled\t"+
		"truly running %\tsampled\t\n")
	total := tr.total(m)
	for _, p := range places(tr) {
		s, got, thread := tr.spent[p], c.places[p], place{p.thread, ""}
		fmt.Fprintf(w, "%s\t%s\t%.3f\t%.3f\t%.2f\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t\n",
			p.thread, strings.TrimPrefix(p.method, "Shares."), s[m].Seconds(), got.weight.Seconds(),
			livetest.ShareOf(s[m], total), livetest.ShareOf(got.weight, c.all.weight),
			livetest.ShareOf(s[m], tr.spent[thread][m]), livetest.ShareOf(got.weight, c.places[thread].weight),
			livetest.ShareOf(s[profile.CPU], s[profile.Wall]), livetest.ShareOf(got.weight-got.waiting, got.weight))
	}
	_ = w.Flush() // a Buffer takes everything
	return b.String()
}

// checkShares compares each method's share of all threads, and of its own.
func checkShares(t *testing.T, m profile.Mode, d time.Duration, tr *truth, c *counted) {
	t.Helper()
	total := tr.total(m)
	for _, p := range places(tr) {
		if p.method == "" {
			continue
		}
		if p.method == systemCall {
			checkSystemCalls(t, m, tr, c, p)
			continue
		}
		s, got, thread := tr.spent[p][m], c.places[p], place{p.thread, ""}
		want, is := livetest.ShareOf(s, total), livetest.ShareOf(got.weight, c.all.weight)
		allowed := points(want, &c.all)
		if d >= fullShares {
			allowed = 2
		}
		if math.Abs(want-is) > allowed {
			t.Errorf("%v: %s of %q has %.2f %% of all threads' time, sampled %.2f %%, allowed %.1f points",
				m, p.method, p.thread, want, is, allowed)
		}
		want, is = livetest.ShareOf(s, tr.spent[thread][m]), livetest.ShareOf(got.weight, c.places[thread].weight)
		const few = 20 // samples of a thread say nothing about its methods
		if allowed := points(want, c.places[thread]); c.places[thread].effective() >= few &&
			math.Abs(want-is) > allowed {
			t.Errorf("%v: %s has %.1f %% of the time of %q, sampled %.1f %%, allowed %.1f points",
				m, p.method, want, p.thread, is, allowed)
		}
	}
}

// systemCall is a function that only calls the kernel, for less than a
// microsecond each time.
const systemCall = "shares_cpu"

// checkSystemCalls requires that samples do not favour the moments at which a thread
// calls the kernel, as stops of a thread do. The calls' time is known as their
// number times the shortest time of a call; under load the time is up to three times
// as long.
func checkSystemCalls(t *testing.T, m profile.Mode, tr *truth, c *counted, p place) {
	t.Helper()
	thread := place{p.thread, ""}
	most := 3 * livetest.ShareOf(tr.spent[p][m], tr.spent[thread][m])
	is, allowed := livetest.ShareOf(c.places[p].weight, c.places[thread].weight), points(most, c.places[thread])
	if is > most+allowed {
		t.Errorf("%v: the system calls of %q take at most %.1f %% of its time, sampled %.1f %%, "+
			"allowed %.1f points more",
			m, p.thread, most, is, allowed)
	}
}

// wrongThreads compares how much time each thread has.
func wrongThreads(m profile.Mode, tr *truth, c *counted) (wrong []string) {
	for p, s := range tr.spent {
		if p.method != "" {
			continue
		}
		got := c.places[p].weight
		// A sample too many or too few must not decide. A processor's samples are of
		// the running thread at the time, so chance decides how many samples a
		// thread has.
		allowed := 100*time.Millisecond + s[m]/50
		if m == profile.CPU {
			allowed += livetest.ByChance(s[m])
		}
		if p.thread == poolThread {
			allowed += s[m] * time.Duration(points(50, c.places[p])) / 100
		}
		if diff := (got - s[m]).Abs(); diff > allowed {
			wrong = append(wrong, fmt.Sprintf("%v: thread %q had %v, sampled %v", m, p.thread, s[m], got))
		}
		if m == profile.Wall && p.thread != poolThread && (got-tr.now).Abs() > tr.now/50+50*time.Millisecond {
			wrong = append(wrong, fmt.Sprintf("the samples of thread %q stand for %v of %v", p.thread, got, tr.now))
		}
	}
	return wrong
}

// mustBeInside are native functions in which a managed method spends its time, with the least per cent of the time.
var mustBeInside = map[[2]string]float64{
	{"Shares.Native.Spin", "shares_spin"}:                     98,
	{"Shares.Native.CallBack", "shares_call_back"}:            98,
	{"Shares.Native.CalledBack", "Shares.Cpu.Compute"}:        95,
	{"Shares.Native.Sleep", "shares_sleep"}:                   98,
	{"Shares.Native.Poll", "shares_poll"}:                     98,
	{"Shares.Blocked.ReadPipe", "Shares.Native.Read"}:         95,
	{"Shares.Blocked.ReadPipe", "shares_read"}:                95,
	{"Shares.Cpu.Alpha", "Shares.Cpu.Compute"}:                98,
	{"Shares.Cpu.Beta", "Shares.Cpu.Descend"}:                 98,
	{"Shares.Cpu.Gamma", "Shares.Cpu.Compute"}:                98,
	{"Shares.Cpu.Throw", "Shares.Cpu.Fail"}:                   35, // until the exception has unwound the frame
	{"Shares.Blocked.Sleep", "System.Threading.Thread.Sleep"}: 95,
}

// checkInside requires that stacks have the frames between, native frames above all.
func checkInside(t *testing.T, m profile.Mode, c *counted) {
	t.Helper()
	for pair, least := range mustBeInside {
		var all weights
		for p, s := range c.places {
			if p.method == pair[0] {
				all.weight += s.weight
				all.samples += s.samples
				all.squares += s.squares
			}
		}
		// With few samples, one or two on the way there are more than a few per cent. One look can stand for
		// several.
		got := livetest.ShareOf(c.inside[pair], all.weight)
		if outside := all.effective() * (1 - got/100); all.samples >= 30 && got < least && outside > 2.5 {
			t.Errorf("%v: only %.1f %% of the time of %s (%d samples, %.1f of equal weight) is in %s",
				m, got, pair[0], all.samples, all.effective(), pair[1])
		}
	}
}

// checkBroken allows half a per cent of the stacks to be incomplete.
func checkBroken(t *testing.T, r *profile.Recording, m profile.Mode) {
	t.Helper()
	s, _ := r.Mode(m)
	if s.Broken > max(3, s.Samples/200) || s.Lost > max(3, s.Samples/200) {
		t.Errorf("%v: of %d samples %d are broken; %d were lost", m, s.Samples, s.Broken, s.Lost)
	}
	marked, n := 0, 0
	for i := range r.Samples {
		if x := &r.Samples[i]; x.Mode == m {
			n += int(x.Count)
			if x.Incomplete {
				marked += int(x.Count)
			}
		}
	}
	if marked != s.Broken || n != s.Samples {
		t.Errorf("%v: the figures say %d samples and %d broken, there are %d and %d", m, s.Samples, s.Broken, n, marked)
	}
}

// checkCPU compares the CPU time of all samples with the kernel's figure for the process.
func checkCPU(t *testing.T, r *profile.Recording, used time.Duration) {
	t.Helper()
	got := time.Duration(r.Weight(profile.CPU))
	// Beginning and end of the recording take time that only used has.
	t.Logf("CPU time by the kernel: %v, in the recording's figures %v, of its samples %v", used, r.Cost.TargetCPU, got)
	if (r.Cost.TargetCPU - used).Abs() > used/20+300*time.Millisecond {
		t.Errorf("the recording says that the target used %v of a processor, the kernel %v", r.Cost.TargetCPU, used)
	}
	if (got - r.Cost.TargetCPU).Abs() > r.Cost.TargetCPU/50+50*time.Millisecond+livetest.ByChance(r.Cost.TargetCPU) {
		t.Errorf("the samples stand for %v of %v of a processor", got, r.Cost.TargetCPU)
	}
}

// checkStates compares how long each method's thread runs. A thread ready to run counts as running.
func checkStates(t *testing.T, tr *truth, c *counted, delays map[int]time.Duration) {
	t.Helper()
	waited := map[string]time.Duration{}
	for tid, name := range tr.tids {
		waited[name] = delays[tid]
	}
	for _, p := range places(tr) {
		s, got := tr.spent[p], c.places[p]
		if p.thread == poolThread || got.samples < 30 {
			continue // unknown delays; or too few samples to say anything
		}
		running := livetest.ShareOf(got.weight-got.waiting, got.weight)
		least, most := livetest.ShareOf(s[profile.CPU], s[profile.Wall]),
			livetest.ShareOf(s[profile.CPU]+waited[p.thread], s[profile.Wall])
		if running < least-points(least, got) || running > most+points(most, got) {
			t.Errorf("%q %s runs for %.1f to %.1f %% of its time, sampled %.1f %%",
				p.thread, p.method, least, most, running)
		}
	}
	// A program that mostly waits is not busy.
	waits := place{"waits", ""}
	s, got := tr.spent[waits], c.places[waits]
	least := 97 - livetest.ShareOf(s[profile.CPU]+waited[waits.thread], s[profile.Wall])
	if livetest.ShareOf(got.waiting, got.weight) < least {
		t.Errorf("the thread that mostly waits uses a processor for %v of %v; sampled as waiting for %v of %v",
			s[profile.CPU], s[profile.Wall], got.waiting, got.weight)
	}
}

// runDelays is how long each thread has been ready to run without a processor.
func runDelays(t *testing.T, pid int) map[int]time.Duration {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]time.Duration{}
	for _, e := range entries {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, e.Name()))
		words := strings.Fields(string(b))
		if err != nil || len(words) != 3 {
			continue // the thread has ended
		}
		tid, _ := strconv.Atoi(e.Name())
		ns, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			t.Fatalf("thread %d: %q", tid, b)
		}
		out[tid] = time.Duration(ns)
	}
	return out
}
