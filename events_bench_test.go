package clrsnap_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"clrsnap"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
)

// An allocator is the program "events" allocating as fast as it can, by itself or
// as the command of clrsnap record.
type allocator struct {
	b    *testing.B
	cmd  *exec.Cmd
	pid  int // of the program, not of clrsnap
	in   io.WriteCloser
	out  *bufio.Scanner
	said bytes.Buffer // by clrsnap

	file string // of the recording; "": there is none
}

// startAllocator starts the program; with flags it is clrsnap record that does.
func startAllocator(b *testing.B, exe string, threads int, flags ...string) *allocator {
	b.Helper()
	a := &allocator{b: b}
	line := []string{testenv.Kit(b).Host(testenv.DefaultRuntime), testenv.Build(b, "events"), "--stdin", "--throughput", "--threads", strconv.Itoa(threads), "--max-seconds", "7200"}
	if len(flags) > 0 {
		a.file = filepath.Join(b.TempDir(), "recording.clrsnap")
		line = append(append(append([]string{exe, "record", "--output", a.file}, flags...), "--"), line...)
	}
	a.cmd = exec.Command(line[0], line[1:]...)
	a.cmd.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1")
	a.cmd.Stderr = &a.said
	in, err := a.cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	a.in, a.out = in, bufio.NewScanner(out)
	if err := a.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		a.in.Close()         // the program ends, whoever has started it
		a.cmd.Process.Kill() // fails if it has ended
	})
	a.until("READY", map[string]any{"PID": &a.pid})
	return a
}

// until reads lines up to one that begins with a word. What others begin with may
// say where the number in them belongs.
func (a *allocator) until(last string, numbers map[string]any) {
	a.b.Helper()
	for a.out.Scan() {
		line := a.out.Text()
		if strings.HasPrefix(line, last) {
			return
		}
		for before, number := range numbers {
			if rest, ok := strings.CutPrefix(line, before+" "); ok {
				if _, err := fmt.Sscan(rest, number); err != nil {
					a.b.Fatalf("%q: %v", line, err)
				}
			}
		}
	}
	a.b.Fatalf("the program ends before it has said %s: %v\n%s", last, a.out.Err(), &a.said)
}

// totals is how many bytes it has allocated, and when that was.
func (a *allocator) totals() (bytes int64, at time.Duration) {
	a.b.Helper()
	if _, err := io.WriteString(a.in, "totals\n"); err != nil {
		a.b.Fatal(err)
	}
	var trees, texts allocations
	a.until("ANSWERED", map[string]any{
		"ANSWER NOW": (*int64)(&at),
		"ANSWER TRUTH alloc Events.Throughput.Trees Events.Throughput+Tree": &trees,
		"ANSWER TRUTH alloc Events.Throughput.Trees System.String":          &texts,
	})
	return int64(trees + texts), at
}

// allocations are the bytes of a truth: the second of its numbers.
type allocations int64

func (n *allocations) Scan(s fmt.ScanState, _ rune) error {
	var count int64
	_, err := fmt.Fscan(s, &count, (*int64)(n))
	return err
}

// measure has it work for a phase, o being whoever looks at it from outside.
func (a *allocator) measure(o *observer) phase {
	a.b.Helper()
	own := func() time.Duration {
		switch {
		case o != nil:
			return o.cpu(a.b)
		case a.file != "":
			return (&observer{cmd: a.cmd}).cpu(a.b) - processCPU(a.b, a.pid) // clrsnap's child, too
		}
		return 0
	}
	return measureUnits(a.b, a.pid, own, a.totals)
}

// end ends it, and returns what was recorded of it, and the microseconds that one
// collection has stopped it for on average.
func (a *allocator) end() (seen *quality, pause float64) {
	a.b.Helper()
	a.in.Close()
	var paused, collections float64
	a.until("RESULT OK", map[string]any{"COUNT pause-microseconds": &paused, "COUNT gen-0": &collections})
	if err := a.cmd.Wait(); err != nil {
		a.b.Fatalf("%v\n%s", err, &a.said)
	}
	if seen = new(quality); a.file != "" {
		var err error
		if seen, err = readQuality(a.file); err != nil {
			a.b.Fatal(err)
		}
	}
	return seen, paused / max(1, collections)
}

// BenchmarkEventsThroughput measures how much less a program does that allocates
// 0.6 GB a second on each thread. With two threads on two processors clrsnap takes
// its own time from them, with one it does not. Every phase that is observed is
// compared with one before it and one after it that are not; the floor is a phase
// that only has the place of one. Aims: at most 3 % lost with one allocation in
// 512 KB, nothing if nothing is to be told.
func BenchmarkEventsThroughput(b *testing.B) {
	exe := buildCommand(b)
	for _, threads := range []int{2, 1} {
		b.Run(fmt.Sprintf("attached/threads=%d", threads), func(b *testing.B) { attachedThroughput(b, exe, threads) })
		b.Run(fmt.Sprintf("started/threads=%d", threads), func(b *testing.B) { startedThroughput(b, exe, threads) })
	}
}

// The flags for an agent that has nothing to tell: there is no contention.
var idleFlags = []string{"--event", "contention"}

// attachedThroughput measures one process, which the agent comes to and leaves.
func attachedThroughput(b *testing.B, exe string, threads int) {
	record := func(name string, flags ...string) *way {
		return &way{name: name, start: func(b *testing.B, pid int) *observer { return recorderWith(b, exe, pid, flags...) }}
	}
	ways := []*way{
		{name: "floor"}, record("idle", idleFlags...), record("512KB", "--event", "alloc"),
		record("100KB", "--event", "alloc", "--alloc-every", "100KB"), record("512KB+gc", "--event", "alloc,gc"),
	}
	a := startAllocator(b, exe, threads)
	before := a.measure(nil)
	for i := 0; b.Loop(); i++ {
		for j := range ways {
			w := ways[(i+j)%len(ways)]
			before = w.compare(before, func() (phase, *quality) { return w.attached(a) }, func() phase { return a.measure(nil) })
		}
	}
	a.end()
	reportLosses(b, ways, nil)
}

func (w *way) attached(a *allocator) (phase, *quality) {
	a.b.Helper()
	if w.start == nil {
		return a.measure(nil), new(quality)
	}
	o := w.start(a.b, a.pid)
	during := a.measure(o)
	seen, err := o.end()
	if err != nil {
		a.b.Fatalf("%s: %v", w.name, err)
	}
	return during, seen
}

// startedThroughput measures a process for each phase.
func startedThroughput(b *testing.B, exe string, threads int) {
	pauses := map[string][]float64{}
	run := func(name string, first func(*allocator), flags ...string) (phase, *quality) {
		a := startAllocator(b, exe, threads, flags...)
		if first != nil {
			first(a)
		}
		p := a.measure(nil)
		seen, pause := a.end()
		pauses[name] = append(pauses[name], pause)
		return p, seen
	}
	alone := func() phase { p, _ := run("", nil); return p }
	visited := func(a *allocator) {
		o := recorderWith(b, exe, a.pid, "--event", "all")
		time.Sleep(time.Second) // the agent is there
		if _, err := o.end(); err != nil {
			b.Fatal(err)
		}
	}
	forms := []struct {
		way
		first func(*allocator)
		flags []string
	}{
		{way: way{name: "floor"}}, {way: way{name: "was attached"}, first: visited}, {way: way{name: "idle"}, flags: idleFlags},
		{way: way{name: "512KB"}, flags: []string{"--event", "alloc"}},
		{way: way{name: "every object"}, flags: []string{"--event", "alloc", "--every-object"}},
	}
	before := alone()
	for i := 0; b.Loop(); i++ {
		for j := range forms {
			f := &forms[(i+j)%len(forms)]
			before = f.compare(before, func() (phase, *quality) { return run(f.name, f.first, f.flags...) }, alone)
		}
	}
	var ways []*way
	for i := range forms {
		ways = append(ways, &forms[i].way)
	}
	reportLosses(b, ways, pauses)
}

// reportLosses prints a table and reports the losses. pauses are the microseconds of
// a collection, by what was done; those of none have the name "".
func reportLosses(b *testing.B, ways []*way, pauses map[string][]float64) {
	b.Helper()
	t := newColumns("way\tphases\tdisturbed\tthroughput lost %\tmedian\tof a CPU second %\tmedian\town CPU %\tsamples\tlost\tbroken\tµs a collection")
	for _, w := range ways {
		t.row("%s\t%d\t%d\t%s\t%.2f\t%s\t%.2f\t%s\t%d\t%d\t%d\t%s", w.name, len(w.lost), w.disturbed, spread(w.lost), median(w.lost),
			spread(w.lostCPU), median(w.lostCPU), spread(w.observerCPU), w.seen.Samples, w.seen.Lost, w.seen.Broken, spread(pauses[w.name]))
		lost, _ := mean(w.lost)
		metric(b, lost, w.name+"-lost-%")
	}
	if alone := pauses[""]; alone != nil {
		t.row("without anybody\t%d%s\t%s", len(alone), strings.Repeat("\t-", 9), spread(alone))
	}
	b.Logf("phases of %v; a processor is 100 %%\n%s", phaseTime, t)
}

// spread is a mean and its standard error.
func spread(x []float64) string {
	if len(x) == 0 {
		return "-"
	}
	m, e := mean(x)
	return fmt.Sprintf("%.2f ± %.2f", m, e)
}

// columns is text in columns.
type columns struct {
	text bytes.Buffer
	w    *tabwriter.Writer
}

func newColumns(head string) *columns {
	t := new(columns)
	t.w = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', tabwriter.AlignRight)
	t.row("%s", head)
	return t
}

func (t *columns) row(format string, args ...any) { fmt.Fprintf(t.w, format+"\t\n", args...) }

func (t *columns) String() string {
	_ = t.w.Flush() // a Buffer takes everything
	return t.text.String()
}

// metric reports a figure; the time of an iteration says nothing.
func metric(b *testing.B, v float64, unit string) {
	b.ReportMetric(v, strings.NewReplacer(" ", "-", ",", "").Replace(unit))
	b.ReportMetric(0, "ns/op")
}

// A listener takes a process's notifications and drops them.
type listener struct {
	s              *clrsnap.Subscription
	stop           context.CancelFunc
	ended          chan error
	stacks, frames int // of the first notifications
}

// manyStacks is of how many notifications frames are counted.
const manyStacks = 1000

// hear subscribes. Until end is called, the process is the listener's alone.
func hear(tb testing.TB, p *clrsnap.Process, o clrsnap.SubscribeOptions, use func(*clrsnap.Notification)) *listener {
	tb.Helper()
	s, err := p.Subscribe(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{s: s, stop: cancel, ended: make(chan error, 1)}
	go func() {
		for {
			n, err := s.Next(ctx)
			if err != nil {
				l.ended <- err
				return
			}
			if use != nil {
				use(n)
			}
			l.count(n)
		}
	}()
	return l
}

func (l *listener) count(n *clrsnap.Notification) {
	if l.stacks == manyStacks || !n.HasStack() {
		return
	}
	l.stacks++
	// A stack that is longer than was asked for is an error that does not matter.
	_ = n.DoStackSnapshot(func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
		l.frames++
		return nil
	}, 0, nil)
}

// end ends the subscription and returns the figures of all events.
func (l *listener) end(tb testing.TB) (all clrsnap.EventStats) {
	tb.Helper()
	l.stop()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		tb.Fatal(err)
	}
	for e := clrsnap.ObjectAllocated; e <= clrsnap.RuntimeResumeFinished; e++ {
		s := l.s.Stats(e)
		all.Seen, all.Published, all.Dropped, all.Failed = all.Seen+s.Seen, all.Published+s.Published, all.Dropped+s.Dropped, all.Failed+s.Failed
	}
	if err := l.s.Close(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// A toll is what an event costs the thread that it happens on.
type toll struct {
	name string
	o    *clrsnap.SubscribeOptions // nil: nobody listens
	cost []float64                 // of a phase, µs of CPU time an event more than without

	stacks, frames int
	stats          clrsnap.EventStats
}

// tollTime is how long CPU time is measured. The program is told to throw and to
// start threads so often that there are enough in it, and processors remain idle.
const tollTime = 4 * time.Second

// BenchmarkEventsToll measures the CPU time of a program for each exception,
// contention and start of a thread, with and without somebody who listens. What the
// callbacks cost by themselves and what each frame costs shows in those of which
// none is chosen, and in stacks of one frame.
func BenchmarkEventsToll(b *testing.B) {
	const none = 1 << 40
	exceptions := func(every int64, frames int) *clrsnap.SubscribeOptions {
		return &clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorExceptions, ExceptionEvery: every, MaxFrames: frames, RingBytes: 4 << 20}
	}
	contention := func(shortest time.Duration, frames int) *clrsnap.SubscribeOptions {
		return &clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorContention, ContentionMin: shortest, MaxFrames: frames}
	}
	threads := func(frames int) *clrsnap.SubscribeOptions {
		return &clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorThreads, MaxFrames: frames}
	}
	b.Run("exception", func(b *testing.B) {
		tolls(b, "exception", "exception rethrow", []*toll{
			{name: "floor"}, {name: "none chosen", o: exceptions(none, 0)}, {name: "one frame", o: exceptions(1, 1)}, {name: "all frames", o: exceptions(1, 0)},
		})
	})
	b.Run("contention", func(b *testing.B) {
		tolls(b, "contention", "contention", []*toll{
			{name: "floor"}, {name: "none chosen", o: contention(time.Hour, 0)}, {name: "one frame", o: contention(0, 1)}, {name: "all frames", o: contention(0, 0)},
		})
	})
	b.Run("thread", func(b *testing.B) {
		tolls(b, "thread", "thread", []*toll{{name: "floor"}, {name: "one frame", o: threads(1)}, {name: "all frames", o: threads(0)}})
	})
}

func tolls(b *testing.B, kind, truths string, all []*toll) {
	a := testenv.Start(b, "events", testenv.Options{Args: []string{"--kinds", kind, "--throws", "8000", "--starts", "800", "--max-seconds", "7200"}})
	p := open(b, a, clrsnap.Options{})
	var alone []float64
	cpuPerEvent(b, a, truths) // while code is compiled, and compiled better
	before := cpuPerEvent(b, a, truths)
	for i := 0; b.Loop(); i++ {
		for j := range all {
			t := all[(i+j)%len(all)]
			during := t.measure(b, a, p, truths)
			after := cpuPerEvent(b, a, truths)
			t.cost = append(t.cost, during-(before+after)/2)
			alone, before = append(alone, after), after
		}
	}
	endsWell(b, a)
	t := newColumns("way\tphases\tmore µs an event\tmedian\tframes\tseen\tpublished\tdropped\tno stack")
	for _, w := range all {
		cost, _ := mean(w.cost)
		t.row("%s\t%d\t%s\t%.2f\t%.1f\t%d\t%d\t%d\t%d", w.name, len(w.cost), spread(w.cost), median(w.cost),
			float64(w.frames)/float64(max(1, w.stacks)), w.stats.Seen, w.stats.Published, w.stats.Dropped, w.stats.Failed)
		metric(b, cost, w.name+"-µs")
	}
	b.Logf("phases of %v; without anybody %s µs of CPU time for an event and what is done between events\n%s", tollTime, spread(alone), t)
}

func (t *toll) measure(b *testing.B, a *testenv.App, p *clrsnap.Process, truths string) float64 {
	b.Helper()
	if t.o == nil {
		return cpuPerEvent(b, a, truths)
	}
	l := hear(b, p, *t.o, nil)
	cost := cpuPerEvent(b, a, truths)
	s := l.end(b)
	t.stacks, t.frames = t.stacks+l.stacks, t.frames+l.frames
	t.stats = clrsnap.EventStats{
		Seen: t.stats.Seen + s.Seen, Published: t.stats.Published + s.Published, Dropped: t.stats.Dropped + s.Dropped, Failed: t.stats.Failed + s.Failed,
	}
	return cost
}

// cpuPerEvent is how many µs of CPU time the program uses for each event of its own.
func cpuPerEvent(b *testing.B, a *testenv.App, truths string) float64 {
	b.Helper()
	time.Sleep(500 * time.Millisecond) // somebody has come or gone
	count := func() (n int64) {
		_, all := a.AskTruths()
		for _, t := range all {
			if strings.Contains(truths, t.Kind) {
				n += t.Count
			}
		}
		return n
	}
	events, cpu := count(), processCPU(b, a.PID)
	time.Sleep(tollTime)
	cpu = processCPU(b, a.PID) - cpu
	return float64(cpu) / float64(time.Microsecond) / float64(max(1, count()-events))
}

// BenchmarkEventsMemory measures how much more memory a process has with the agent
// in it, told to report everything: one in which nothing happens, and one in which
// all does, whose own memory goes up and down: the floor is how much in the same
// time. The first time the runtime itself gets ready for profilers and events, and
// keeps what it needs for that. Aim: less than 1 MB.
func BenchmarkEventsMemory(b *testing.B) {
	for app, args := range map[string][]string{"idle": {"--threads", "50"}, "events": {"--max-seconds", "7200"}} {
		b.Run(app, func(b *testing.B) {
			a := testenv.Start(b, app, testenv.Options{Args: args})
			p := open(b, a, clrsnap.Options{})
			grown := map[string]map[string][]float64{"floor": {}, "first time": {}, "left behind": {}, "again": {}}
			for i := 0; b.Loop(); i++ {
				start := settledMemory(b, a.PID)
				before := settledMemory(b, a.PID)
				l := hear(b, p, clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorAll}, nil)
				during := settledMemory(b, a.PID)
				l.end(b)
				after := settledMemory(b, a.PID)
				for field := range start {
					grown["floor"][field] = append(grown["floor"][field], before[field]-start[field])
					if i > 0 {
						grown["again"][field] = append(grown["again"][field], during[field]-before[field])
						continue
					}
					grown["first time"][field] = []float64{during[field] - before[field]}
					grown["left behind"][field] = []float64{after[field] - before[field]}
				}
			}
			endsWell(b, a)
			reportMemory(b, grown)
		})
	}
}

// settledMemory is the mean of a process's memory over some seconds, in KB: the
// fields of smaps_rollup, and what lies in the agent's own files.
func settledMemory(b *testing.B, pid int) map[string]float64 {
	b.Helper()
	time.Sleep(time.Second) // somebody has come or gone
	const times = 10
	sum := map[string]float64{"clrsnap-agent Rss": 0, "clrsnap-events Rss": 0} // there may be none
	for range times {
		time.Sleep(200 * time.Millisecond)
		addMemory(b, pid, "smaps_rollup", sum, times)
		addMemory(b, pid, "smaps", sum, times)
	}
	return sum
}

// addMemory adds a part of the memory fields of a file, smaps or smaps_rollup.
func addMemory(b *testing.B, pid int, file string, sum map[string]float64, parts float64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		b.Fatal(err)
	}
	of := ""
	for line := range strings.Lines(string(text)) {
		field, rest, _ := strings.Cut(line, ":")
		var kb float64
		switch words := strings.Fields(rest); {
		case strings.Contains(field, "-"): // the line of a mapping
			of = ""
			if file == "smaps" {
				of = agentFile(line)
			}
		case len(words) == 2 && words[1] == "kB" && (file != "smaps" || of != ""):
			if _, err := fmt.Sscan(words[0], &kb); err != nil {
				b.Fatalf("%q: %v", line, err)
			}
			sum[of+field] += kb / parts
		}
	}
}

// agentFile is which of the agent's files a mapping is of.
func agentFile(mapping string) string {
	for _, name := range []string{"clrsnap-events", "clrsnap-agent"} {
		if strings.Contains(mapping, name) {
			return name + " "
		}
	}
	return "" // it is the program's
}

func reportMemory(b *testing.B, grown map[string]map[string][]float64) {
	b.Helper()
	fields := []string{"Rss", "Pss", "Pss_Anon", "Pss_File", "Pss_Shmem", "clrsnap-agent Rss", "clrsnap-events Rss"}
	t := newColumns("more KB\ttimes\t" + strings.Join(fields, "\t"))
	for _, when := range []string{"floor", "first time", "left behind", "again"} {
		row := fmt.Sprintf("%s\t%d", when, len(grown[when]["Rss"]))
		for _, field := range fields {
			row += "\t" + spread(grown[when][field])
		}
		t.row("%s", row)
	}
	for _, when := range []string{"first time", "again"} {
		more, _ := mean(grown[when]["Rss"])
		metric(b, more, when+"-KB")
	}
	b.Logf("\n%s", t)
}

// stops are the suspensions of the runtime in some phases, in µs.
type stops struct {
	name     string
	monitor  clrsnap.Monitor
	stopping samples // until all threads stand still
	whole    samples // until all may run again
	time     time.Duration
	stats    clrsnap.EventStats
}

// BenchmarkEventsPauses measures how long collections stop the program while
// allocations, or everything, are reported, too. The floor reports the stops only;
// without anybody who listens nobody knows them, but the program their sum, which
// BenchmarkEventsThroughput compares. Aim: at most twice the floor.
func BenchmarkEventsPauses(b *testing.B) {
	a := testenv.Start(b, "events", testenv.Options{Args: []string{"--throughput", "--max-seconds", "7200"}})
	p := open(b, a, clrsnap.Options{})
	all := []*stops{
		{name: "floor", monitor: clrsnap.MonitorGC},
		{name: "alloc", monitor: clrsnap.MonitorGC | clrsnap.MonitorAllocations},
		{name: "all", monitor: clrsnap.MonitorAll},
	}
	for i := 0; b.Loop(); i++ {
		for j := range all {
			all[(i+j)%len(all)].measure(b, p)
		}
	}
	endsWell(b, a)
	t := newColumns("reported\tstops\ta second\tµs to stop\tmedian\t99th\tµs stopped\tmedian\t99th\tratio\tof medians\tof 99th\tdropped")
	floor := all[0]
	for _, s := range all {
		t.row("%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%d", s.name, len(s.whole), float64(len(s.whole))/s.time.Seconds(),
			s.stopping.mean(), s.stopping.at(50)/1e3, s.stopping.at(99)/1e3, s.whole.mean(), s.whole.at(50)/1e3, s.whole.at(99)/1e3,
			s.whole.mean()/floor.whole.mean(), s.whole.at(50)/floor.whole.at(50), s.whole.at(99)/floor.whole.at(99), s.stats.Dropped)
		metric(b, s.whole.mean()/floor.whole.mean(), s.name+"-ratio")
	}
	b.Logf("\n%s", t)
}

// mean is in µs.
func (s samples) mean() float64 {
	var sum time.Duration
	for _, d := range s {
		sum += d
	}
	return float64(sum) / float64(time.Microsecond) / float64(max(1, len(s)))
}

func (s *stops) measure(b *testing.B, p *clrsnap.Process) {
	b.Helper()
	var began, stopped time.Duration
	start := time.Now()
	l := hear(b, p, clrsnap.SubscribeOptions{Monitor: s.monitor, RingBytes: 4 << 20}, func(n *clrsnap.Notification) {
		switch n.Event {
		case clrsnap.RuntimeSuspendStarted:
			began, stopped = n.At, 0
		case clrsnap.RuntimeSuspendFinished:
			stopped = n.At
		case clrsnap.RuntimeResumeFinished:
			if began != 0 && stopped != 0 { // else it began before we came
				s.stopping, s.whole = append(s.stopping, stopped-began), append(s.whole, n.At-began)
			}
			began = 0
		}
	})
	time.Sleep(phaseTime)
	s.time += time.Since(start)
	s.stats.Dropped += l.end(b).Dropped
	time.Sleep(300 * time.Millisecond)
}

func init() { roles["listen"] = listenUntilTold }

// listenUntilTold takes notifications as SubscribeOptions in CLRSNAP_TEST_SUBSCRIBE
// want them, and drops them: what no reader can do without.
func listenUntilTold(pid int) error {
	var o clrsnap.SubscribeOptions
	if err := json.Unmarshal([]byte(os.Getenv("CLRSNAP_TEST_SUBSCRIBE")), &o); err != nil {
		return err
	}
	p, err := clrsnap.Open(pid)
	if err != nil {
		return err
	}
	defer p.Close()
	s, err := p.Subscribe(context.Background(), o)
	if err != nil {
		return err
	}
	fmt.Println(began)
	q := new(quality)
	ctx := untilStdinEnds()
	for ; err == nil; q.Samples++ {
		_, err = s.Next(ctx)
	}
	q.Samples-- // it is the error that came last
	for e := clrsnap.ObjectAllocated; e <= clrsnap.RuntimeResumeFinished; e++ {
		q.Lost += int(s.Stats(e).Dropped)
	}
	if q.Memory = live.PeakMemory(); !errors.Is(err, context.Canceled) {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(q)
}

// BenchmarkEventsReader measures the CPU time that clrsnap record itself uses, by
// itself and for every 1,000 notifications. The floor takes them and drops them.
func BenchmarkEventsReader(b *testing.B) {
	exe := buildCommand(b)
	const kilobytes = 1 << 10
	for _, c := range []struct {
		name    string
		args    []string
		o       clrsnap.SubscribeOptions
		flags   []string
		records func([]testenv.Truth) float64 // how many there must be
	}{
		{"idle", []string{"--kinds", "exception"}, clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorContention}, idleFlags, nil},
		{"exception", []string{"--kinds", "exception"}, clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorExceptions}, []string{"--event", "exception"}, exceptionRecords},
		{"512KB", []string{"--throughput"}, clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorAllocations}, []string{"--event", "alloc"}, allocRecords(512 * kilobytes)},
		{"100KB", []string{"--throughput"}, clrsnap.SubscribeOptions{Monitor: clrsnap.MonitorAllocations, AllocationBytes: 100 * kilobytes}, []string{"--event", "alloc", "--alloc-every", "100KB"}, allocRecords(100 * kilobytes)},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := testenv.Start(b, "events", testenv.Options{Args: append(c.args, "--max-seconds", "7200")})
			wanted, err := json.Marshal(c.o)
			if err != nil {
				b.Fatal(err)
			}
			readers := []*reader{
				{name: "floor", start: func() *observer { return observe(b, "listen", a.PID, "CLRSNAP_TEST_SUBSCRIBE="+string(wanted)) }},
				{name: "record", start: func() *observer { return recorderWith(b, exe, a.PID, c.flags...) }},
			}
			for i := 0; b.Loop(); i++ {
				for j := range readers {
					readers[(i+j)%len(readers)].measure(b, a, c.records)
				}
			}
			endsWell(b, a)
			reportReaders(b, readers)
		})
	}
}

// exceptionRecords are those of everything thrown, and of everything caught.
func exceptionRecords(truths []testenv.Truth) (n float64) {
	for _, t := range truths {
		if t.Kind == "exception" || t.Kind == "rethrow" {
			n += 2 * float64(t.Count)
		}
	}
	return n
}

func allocRecords(every float64) func([]testenv.Truth) float64 {
	return func(truths []testenv.Truth) (n float64) {
		for _, t := range truths {
			n += float64(t.Amount) / every
		}
		return n
	}
}

// A reader takes notifications in a process of its own.
type reader struct {
	name    string
	start   func() *observer
	cpu     []float64 // per cent of a processor, of each phase
	each    []float64 // ms for 1,000 notifications
	records []float64 // a second
	seen    quality
}

func (r *reader) measure(b *testing.B, a *testenv.App, records func([]testenv.Truth) float64) {
	b.Helper()
	o := r.start()
	time.Sleep(time.Second) // it has begun
	began, before := a.AskTruths()
	cpu := o.cpu(b)
	time.Sleep(phaseTime)
	cpu = o.cpu(b) - cpu
	ended, after := a.AskTruths()
	seen, err := o.end()
	if err != nil {
		b.Fatalf("%s: %v", r.name, err)
	}
	r.seen.add(seen)
	seconds := (ended - began).Seconds()
	r.cpu = append(r.cpu, 100*cpu.Seconds()/seconds)
	if records != nil {
		n := records(after) - records(before)
		r.records, r.each = append(r.records, n/seconds), append(r.each, 1e6*cpu.Seconds()/n)
	}
}

func reportReaders(b *testing.B, readers []*reader) {
	b.Helper()
	t := newColumns("reader\tphases\tCPU %\tnotifications a second\tms for 1,000\tsamples\tlost\tbroken\tMB")
	for _, r := range readers {
		t.row("%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d", r.name, len(r.cpu), spread(r.cpu), spread(r.records), spread(r.each),
			r.seen.Samples, r.seen.Lost, r.seen.Broken, r.seen.Memory>>20)
		cpu, _ := mean(r.cpu)
		metric(b, cpu, r.name+"-cpu-%")
		if each, _ := mean(r.each); each > 0 {
			metric(b, each, r.name+"-ms/1000")
		}
	}
	b.Logf("phases of %v; a processor is 100 %%\n%s", phaseTime, t)
}
