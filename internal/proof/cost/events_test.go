package cost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"
)

// BenchmarkEventsMemory measures how much more memory a process has with the
// agent, told to report everything: an idle process, and a process with all
// events, whose own memory goes up and down. The floor is the growth in the same
// time without the agent. The first time, the runtime itself prepares for
// profilers and events, and keeps the memory for them. Aim: less than 1 MB.
func BenchmarkEventsMemory(b *testing.B) {
	for _, command := range [][]string{{"idle", "--threads", "50"}, {"events", "--max-seconds", "7200"}} {
		b.Run(command[0], func(b *testing.B) {
			a := testenv.Start(b, command[0], testenv.Options{Args: command[1:]})
			p := livetest.Open(b, a, clrsnap.Options{})
			grown := map[string]map[string][]float64{"floor": {}, "first time": {}, "left behind": {}, "again": {}}
			for i := 0; b.Loop(); i++ {
				start := settledMemory(b, a.PID)
				before := settledMemory(b, a.PID)
				l := hear(b, p, events.Options{Monitor: events.MonitorAll}, nil)
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
			livetest.EndsWell(b, a)
			reportMemory(b, grown)
		})
	}
}

// settledMemory is the mean of a process's memory over some seconds, in KB: the
// fields of smaps_rollup, and the memory of the agent's own files.
func settledMemory(b *testing.B, pid int) map[string]float64 {
	b.Helper()
	time.Sleep(time.Second) // an observer has come or gone
	const times = 10
	sum := map[string]float64{"clrsnap-agent Rss": 0, "clrsnap-events Rss": 0} // the process may have no such file
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

// agentFile is the name of the agent's file of a mapping.
func agentFile(mapping string) string {
	for _, name := range []string{"clrsnap-events", "clrsnap-agent"} {
		if strings.Contains(mapping, name) {
			return name + " "
		}
	}
	return "" // a file of the program
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
	monitor  events.Monitor
	stopping samples // until all threads stand still
	whole    samples // until all may run again
	time     time.Duration
	stats    events.EventStats
}

// BenchmarkEventsPauses measures how long collections stop the program while the
// agent also reports allocations, or everything. The floor reports only the stops.
// Without a listener, only the program knows the stops, and only their sum:
// BenchmarkEventsThroughput compares the sums. Aim: at most twice the floor.
func BenchmarkEventsPauses(b *testing.B) {
	a := testenv.Start(b, "events", testenv.Options{Args: []string{"--throughput", "--max-seconds", "7200"}})
	p := livetest.Open(b, a, clrsnap.Options{})
	all := []*stops{
		{name: "floor", monitor: events.MonitorGC},
		{name: "alloc", monitor: events.MonitorGC | events.MonitorAllocations},
		{name: "all", monitor: events.MonitorAll},
	}
	for i := 0; b.Loop(); i++ {
		for j := range all {
			all[(i+j)%len(all)].measure(b, p)
		}
	}
	livetest.EndsWell(b, a)
	t := newColumns("reported\tstops\ta second\tµs to stop\tmedian\t99th\tµs stopped\tmedian\t99th\t" +
		"ratio\tof medians\tof 99th\tdropped")
	floor := all[0]
	for _, s := range all {
		t.row("%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%d",
			s.name, len(s.whole), float64(len(s.whole))/s.time.Seconds(),
			s.stopping.mean(), s.stopping.at(50)/1e3, s.stopping.at(99)/1e3,
			s.whole.mean(), s.whole.at(50)/1e3, s.whole.at(99)/1e3,
			s.whole.mean()/floor.whole.mean(), s.whole.at(50)/floor.whole.at(50), s.whole.at(99)/floor.whole.at(99),
			s.stats.Dropped)
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
	l := hear(b, p, events.Options{Monitor: s.monitor, RingBytes: 4 << 20}, func(n *events.Notification) {
		switch n.Event {
		case events.RuntimeSuspendStarted:
			began, stopped = n.At, 0
		case events.RuntimeSuspendFinished:
			stopped = n.At
		case events.RuntimeResumeFinished:
			if began != 0 && stopped != 0 { // else the stop began before the subscription
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

// notified takes notifications of a process and drops them: the least work of any reader. The second argument has the
// events.Options, as JSON.
var notified = role.New("listener", func(a role.Args) error {
	var o events.Options
	if err := json.Unmarshal([]byte(a[1]), &o); err != nil {
		return err
	}
	p, err := clrsnap.Open(context.Background(), a.Int(0), clrsnap.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	s, err := events.Subscribe(context.Background(), p, o)
	if err != nil {
		return err
	}
	observer.Began()
	q := new(observer.Quality)
	ctx := observer.UntilStdinEnds()
	for ; err == nil; q.Samples++ {
		_, err = s.Next(ctx)
	}
	q.Samples-- // the last call returned the error
	for e := events.ObjectAllocated; e <= events.RuntimeResumeFinished; e++ {
		q.Lost += int(s.Stats(e).Dropped)
	}
	if q.Memory = live.PeakMemory(); !errors.Is(err, context.Canceled) {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(q)
})

// BenchmarkEventsReader measures the CPU time of clrsnap record, alone and for
// every 1,000 notifications. The floor takes the notifications and drops them.
func BenchmarkEventsReader(b *testing.B) {
	exe := livetest.Command(b)
	const kilobytes = 1 << 10
	for _, c := range []struct {
		name    string
		args    []string                      // of the program
		o       events.Options                // of the floor
		flags   []string                      // of clrsnap record
		records func([]testenv.Truth) float64 // expected number
	}{
		{
			"idle", []string{"--kinds", "exception"},
			events.Options{Monitor: events.MonitorContention}, idleFlags, nil,
		},
		{
			"exception", []string{"--kinds", "exception"},
			events.Options{Monitor: events.MonitorExceptions}, []string{"--event", "exception"}, exceptionRecords,
		},
		{
			"512KB", []string{"--throughput"},
			events.Options{Monitor: events.MonitorAllocations},
			[]string{"--event", "alloc"}, allocRecords(512 * kilobytes),
		},
		{
			"100KB", []string{"--throughput"},
			events.Options{Monitor: events.MonitorAllocations, AllocationBytes: 100 * kilobytes},
			[]string{"--event", "alloc", "--alloc-every", "100KB"}, allocRecords(100 * kilobytes),
		},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := testenv.Start(b, "events", testenv.Options{Args: append(c.args, "--max-seconds", "7200")})
			wanted, err := json.Marshal(c.o)
			if err != nil {
				b.Fatal(err)
			}
			readers := []*reader{
				{name: "floor", start: func() *observer.Observer {
					return observer.Observe(b, notified, a.PID, string(wanted))
				}},
				{name: "record", start: func() *observer.Observer {
					return observer.Recorder(b, exe, a.PID, c.flags...)
				}},
			}
			for i := 0; b.Loop(); i++ {
				for j := range readers {
					readers[(i+j)%len(readers)].measure(b, a, c.records)
				}
			}
			livetest.EndsWell(b, a)
			reportReaders(b, readers)
		})
	}
}

// exceptionRecords is the number of records of everything thrown and caught.
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
	start   func() *observer.Observer
	cpu     []float64 // per cent of a CPU, of each phase
	each    []float64 // ms for 1,000 notifications
	records []float64 // a second
	seen    observer.Quality
}

func (r *reader) measure(b *testing.B, a *testenv.App, records func([]testenv.Truth) float64) {
	b.Helper()
	o := r.start()
	time.Sleep(time.Second) // the reader has begun
	began, before := a.AskTruths()
	cpu := o.CPU(b)
	time.Sleep(phaseTime)
	cpu = o.CPU(b) - cpu
	ended, after := a.AskTruths()
	seen, err := o.End()
	if err != nil {
		b.Fatalf("%s: %v", r.name, err)
	}
	r.seen.Add(seen)
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
		t.row("%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d",
			r.name, len(r.cpu), spread(r.cpu), spread(r.records), spread(r.each),
			r.seen.Samples, r.seen.Lost, r.seen.Broken, r.seen.Memory>>20)
		cpu, _ := mean(r.cpu)
		metric(b, cpu, r.name+"-cpu-%")
		if each, _ := mean(r.each); each > 0 {
			metric(b, each, r.name+"-ms/1000")
		}
	}
	b.Logf("phases of %v; a CPU is 100 %%\n%s", phaseTime, t)
}
