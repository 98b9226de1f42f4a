package cost

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/testenv"
)

// A subject is a working process, and how to measure it.
type subject struct {
	pid int
	ask func() (units int64, at time.Duration) // the work so far, and the time of the count
	url string                                 // that wrk asks; "": the subject works by itself
	own func() time.Duration                   // CPU time of the observer that started the subject; nil: none

	load    *load // the running wrk
	awake   wakers
	others  float64 // as in the last phase
	windows windows
}

// windows say how long after an observer's start a phase begins, and the length of the phase.
type windows struct{ settle, length time.Duration }

// shortWindows suit most programs: the speed of a virtual machine changes every few seconds.
var shortWindows = windows{settleTime, phaseTime}

// subjectOf is a program that answers the command "units".
func subjectOf(tb testing.TB, a *testenv.App) *subject {
	return &subject{
		pid: a.PID, ask: func() (int64, time.Duration) { return askUnits(tb, a) }, windows: shortWindows,
	}
}

func askUnits(tb testing.TB, a *testenv.App) (units int64, at time.Duration) {
	tb.Helper()
	answer := a.Ask("units")
	if len(answer) != 1 {
		tb.Fatalf("%s answers %q", a, answer)
	}
	if _, err := fmt.Sscanf(answer[0], "UNITS %d %d", &units, &at); err != nil {
		tb.Fatalf("%q: %v", answer[0], err)
	}
	return units, at
}

// A phase is the work of a subject during some seconds.
type phase struct {
	perSecond   float64 // units of work
	cpuPerUnit  float64 // of the subject, in seconds
	observerCPU float64 // CPUs that the observer used
	others      float64 // CPUs that other processes used, and the kernel by itself
}

// A phase begins after the end of the previous phase, and after the observer's
// start: the cost of starting is not in the phase.
const (
	settleTime = time.Second / 2
	phaseTime  = time.Second
)

// repeats is how often a pair is repeated if others disturb the pair. A pair disturbed
// every time does not count. Neither does a pair whose two phases without an observer
// differ by more than steady, a part of the work: something else has changed meanwhile.
const (
	repeats = 3
	steady  = 0.1
)

// awaitQuiet waits until others leave the CPUs alone, if others used the CPUs in the last
// phase; for a minute at most.
func (s *subject) awaitQuiet(b *testing.B) {
	b.Helper()
	for end := time.Now().Add(time.Minute); s.others > *quietFlag && time.Now().Before(end); {
		start, all, known := time.Now(), livetest.MachineCPU(b), s.cpu(b)
		time.Sleep(time.Second)
		all, known = livetest.MachineCPU(b)-all, s.cpu(b)-known
		s.others = (all - known).Seconds() / time.Since(start).Seconds()
	}
}

// cpu is the CPU time of the subject, of wrk, and of the wakers.
func (s *subject) cpu(b *testing.B) time.Duration {
	b.Helper()
	sum := livetest.CPU(b, s.pid) + s.awake.cpu(b)
	if s.load != nil {
		sum += livetest.CPU(b, s.load.cmd.Process.Pid)
	}
	return sum
}

// phase has the subject work under observation; nil: without an observer.
func (s *subject) phase(b *testing.B, w *way) (phase, *observer.Quality) {
	b.Helper()
	s.keepAsking(b)
	s.awaitQuiet(b)
	if w == nil || w.start == nil {
		return s.measure(b, nil), new(observer.Quality)
	}
	o := w.start(b, s.pid)
	p := s.measure(b, o)
	seen, err := o.End()
	if err != nil {
		b.Fatalf("%s: %v", w.name, err)
	}
	return p, seen
}

// keepAsking starts a load for a subject with a URL. The load serves many phases: a
// web server takes some seconds to come to its pace.
func (s *subject) keepAsking(b *testing.B) {
	b.Helper()
	if s.url == "" || s.load != nil && time.Since(s.load.started) < loadTime/2 {
		return
	}
	s.stopAsking(b)
	s.load = startLoad(b, s)
	time.Sleep(3 * time.Second)
}

// stopAsking ends the load, and requires that the program has counted as many
// requests. Each connection can leave a request behind at the end, of this load and
// of the load before.
func (s *subject) stopAsking(b *testing.B) {
	b.Helper()
	if s.load == nil {
		return
	}
	l := s.load
	s.load = nil
	answers := l.end(b)
	if after, _ := s.ask(); after-l.before < answers || after-l.before > answers+2*connections {
		b.Fatalf("wrk had %d answers, the program %d requests", answers, after-l.before)
	}
}

// measure takes the figures of a phase.
func (s *subject) measure(b *testing.B, o *observer.Observer) phase {
	b.Helper()
	ownCPU := func() time.Duration {
		switch {
		case o != nil:
			return o.CPU(b)
		case s.own != nil:
			return s.own()
		}
		return 0
	}
	time.Sleep(s.windows.settle)
	own, known, all := ownCPU(), s.cpu(b), livetest.MachineCPU(b)
	units, at := s.ask()
	cpu := livetest.CPU(b, s.pid)
	time.Sleep(s.windows.length)
	units2, at2 := s.ask()
	cpu = livetest.CPU(b, s.pid) - cpu
	own, known, all = ownCPU()-own, s.cpu(b)-known, livetest.MachineCPU(b)-all
	done, d := float64(units2-units), (at2 - at).Seconds()
	s.others = (all - own - known).Seconds() / d
	return phase{done / d, cpu.Seconds() / done, own.Seconds() / d, s.others}
}

// A way is how a subject is observed, and the figures.
type way struct {
	key   string // for -ways
	name  string
	start func(b *testing.B, pid int) *observer.Observer // nil: no observer
	floor bool                                           // has no stacks to judge

	perSecond   changes // of each pair
	cpuPerUnit  changes
	observerCPU []float64 // per cent of one CPU
	others      []float64 // CPU that others used in the worst phase, likewise
	disturbed   int       // pairs not counted, because others disturbed every attempt
	seen        observer.Quality
}

// wanted are the ways whose whole keys -ways matches.
func wanted(b *testing.B, ways ...*way) (out []*way) {
	b.Helper()
	re, err := regexp.Compile("^(?:" + *waysFlag + ")$")
	if err != nil {
		b.Fatalf("-ways: %v", err)
	}
	for _, w := range ways {
		if re.MatchString(w.key) {
			out = append(out, w)
		}
	}
	return out
}

// compareWays measures every way once in each iteration, and begins with another way
// each time.
func (s *subject) compareWays(b *testing.B, ways []*way) {
	b.Helper()
	if s.url == "" {
		s.awake = keepAwake(b)
	}
	alone := func() phase { p, _ := s.phase(b, nil); return p }
	before := alone()
	for i := 0; b.Loop(); i++ {
		for j := range ways {
			w := ways[(i+j)%len(ways)]
			before = w.compare(before, func() (phase, *observer.Quality) { return s.phase(b, w) }, alone)
		}
	}
	s.stopAsking(b)
}

// compare measures a phase with an observer and a phase without, again and
// again until nobody disturbs them, and returns the last phase.
func (w *way) compare(before phase, observed func() (phase, *observer.Quality), alone func() phase) phase {
	for range repeats + 1 {
		during, seen := observed()
		after := alone()
		if max(before.others, during.others, after.others) <= *quietFlag && before.like(&after) {
			w.add(&before, &during, &after, seen)
			return after
		}
		before = after
	}
	w.disturbed++
	return before
}

// like reports whether the work was about as much as in another phase.
func (p *phase) like(q *phase) bool {
	return math.Abs(p.perSecond-q.perSecond) <= steady*max(p.perSecond, q.perSecond)
}

// add counts a pair: a phase with an observer, and the mean of the phases before and
// after, so that slow changes of the machine cancel out.
func (w *way) add(before, during, after *phase, seen *observer.Quality) {
	w.pair(between(before, after), during, max(before.others, during.others, after.others))
	w.seen.Add(seen)
}

// pair counts the work without an observer and with an observer, while others used so many
// CPUs.
func (w *way) pair(without, with *phase, others float64) {
	w.perSecond.add(without.perSecond, with.perSecond)
	w.cpuPerUnit.add(without.cpuPerUnit, with.cpuPerUnit)
	w.observerCPU = append(w.observerCPU, 100*with.observerCPU)
	w.others = append(w.others, 100*others)
}

// between is the mean of two phases.
func between(p, q *phase) *phase {
	return &phase{
		(p.perSecond + q.perSecond) / 2, (p.cpuPerUnit + q.cpuPerUnit) / 2, (p.observerCPU + q.observerCPU) / 2,
		(p.others + q.others) / 2,
	}
}

// A column is an additional column in a table of ways.
type column struct {
	head string
	cell func(w *way) string
}

// compared describes the pairs of phases for the report.
func (w windows) compared() string {
	return fmt.Sprintf(" Each window of %v, %v after something has begun to observe it, is compared with the windows "+
		"before and after it, in which nothing does.", w.length, w.settle)
}

// reportWays prints the costs of ways in a table, ready for a document, and reports the
// losses.
func reportWays(b *testing.B, head, unit string, ways []*way, more ...column) {
	b.Helper()
	title := "observed by\tpairs\tleft out\tothers %\t" + unit + " lost %\tmedian\t" +
		"CPU for each, more %\tmedian\tits own CPU %\tMB\tsamples\tlost\tbroken"
	for _, c := range more {
		title += "\t" + c.head
	}
	t := newColumns(title)
	disturbed := 0
	for _, w := range ways {
		losses, dearer := w.perSecond.lost(), w.cpuPerUnit.more()
		row := fmt.Sprintf("%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s", w.name, len(losses), w.disturbed,
			middle(w.others), spread(losses), middle(losses), spread(dearer), middle(dearer))
		if w.seen.Memory == 0 { // had no observer, or all pairs are left out
			row += strings.Repeat("\t–", 5)
		} else {
			s := &w.seen
			broken := strconv.Itoa(s.Broken)
			if w.floor {
				broken = "–"
			}
			row += fmt.Sprintf("\t%s\t%d\t%d\t%d\t%s", spread(w.observerCPU), s.Memory>>20, s.Samples, s.Lost, broken)
		}
		for _, c := range more {
			row += "\t" + c.cell(w)
		}
		t.row("%s", row)
		disturbed += w.disturbed
		if lost, _ := mean(losses); len(losses) > 0 {
			metric(b, lost, cmp.Or(w.key, w.name)+"-lost-%")
		}
	}
	text := fmt.Sprintf("%s\n%s Values are means ± standard error. A CPU is 100 %%.\n\n%s", machine(), head, t)
	if disturbed > 0 {
		text += fmt.Sprintf("\n%d pairs are left out: %d times in a row others used more than %g CPUs, "+
			"or what was done before and after differed by more than %.0f %%.\n",
			disturbed, repeats+1, *quietFlag, 100*steady)
	}
	fmt.Printf("\n\n%s\n", text) // not to the log, which indents its text
}

// machine describes the machine of the measurement.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	info, _ := os.ReadFile("/proc/cpuinfo")
	model := "unknown"
	if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(info); m != nil {
		model = string(m[1])
	}
	virtual := ""
	if strings.Contains(string(info), " hypervisor") {
		virtual = ", a virtual machine"
	}
	cpus := strings.Count(string(info), "processor\t")
	return fmt.Sprintf("%d CPUs (%s%s), Linux %s.", cpus, model, virtual, strings.TrimSpace(string(kernel)))
}
