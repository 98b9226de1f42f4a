package clrsnap_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"clrsnap/internal/testenv"
)

// A phase is what a target did for some seconds.
type phase struct {
	perSecond, perCPUSecond float64 // units of work
	observerCPU             float64 // processors that the observer used
	others                  float64 // that everybody else used, and the kernel by itself
}

// quiet is how many processors others may use for a phase to count. A phase that
// they disturb is repeated, if need be this often.
const (
	quiet   = 0.04
	repeats = 3
)

const phaseTime = 2 * time.Second

// measure has a target work for a phase; o is nil if it is left alone.
func measure(b *testing.B, a *testenv.App, o *observer) phase {
	b.Helper()
	own := func() time.Duration {
		if o == nil {
			return 0
		}
		return o.cpu(b)
	}
	return measureUnits(b, a.PID, own, func() (int64, time.Duration) { return askUnits(b, a) })
}

// measureUnits has a process work for a phase. ask returns how much it has done and
// when that was, own the CPU time of the observer.
func measureUnits(b *testing.B, pid int, own func() time.Duration, ask func() (int64, time.Duration)) phase {
	b.Helper()
	time.Sleep(time.Second) // what came before has an end, and an observer has begun
	ownCPU, all := own(), machineCPU(b)
	units, at := ask()
	cpu := processCPU(b, pid)
	time.Sleep(phaseTime)
	units2, at2 := ask()
	cpu = processCPU(b, pid) - cpu
	ownCPU, all = own()-ownCPU, machineCPU(b)-all
	done, d := float64(units2-units), (at2 - at).Seconds()
	return phase{done / d, done / cpu.Seconds(), ownCPU.Seconds() / d, (all - ownCPU - cpu).Seconds() / d}
}

// machineCPU is the time that all processors have not been idle, what other
// machines took away from this one included.
func machineCPU(tb testing.TB) time.Duration {
	tb.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		tb.Fatal(err)
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		tb.Fatal(err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture that .NET runs on
	return time.Duration(user+nice+system+irq+softirq+steal) * tick
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

// A way is how a target is observed, and what came of it.
type way struct {
	name  string
	start func(b *testing.B, pid int) *observer

	lost, lostCPU []float64 // per cent of the throughput, of each phase
	observerCPU   []float64 // per cent of one processor
	disturbed     int       // phases that others disturbed, every time
	seen          quality
}

// recordWay records with a mode at a rate.
func recordWay(exe, mode string, rate float64) *way {
	return &way{name: fmt.Sprintf("%s-%g", mode, rate), start: func(b *testing.B, pid int) *observer { return recorder(b, exe, pid, mode, rate) }}
}

// floorWay has the kernel take the same samples, and drops them.
func floorWay(rate float64) *way {
	period := time.Duration(float64(time.Second) / rate)
	return &way{name: fmt.Sprintf("floor-%g", rate), start: func(b *testing.B, pid int) *observer {
		return observe(b, "drain", pid, "CLRSNAP_TEST_PERIOD="+period.String())
	}}
}

// BenchmarkRecordCost measures how much less a program with 50 busy threads does
// while it is recorded. Each phase with a recorder has one without before it and one
// after it, which it is compared with: what else the machine does changes slowly.
// Aims: at most 1 % lost at 99 Hz, 5 % at 999 Hz; 0.5 % of the stacks broken.
func BenchmarkRecordCost(b *testing.B) {
	exe := buildCommand(b)
	ways := []*way{recordWay(exe, "cpu", 99), floorWay(99), recordWay(exe, "cpu", 999), floorWay(999), recordWay(exe, "wall", 99)}
	compareWays(b, testenv.Start(b, "busy", testenv.Options{Args: []string{"--max-seconds", "3600"}}), ways)
}

// compareWays measures every way once in each iteration.
func compareWays(b *testing.B, a *testenv.App, ways []*way) {
	b.Helper()
	before := measure(b, a, nil)
	for i := 0; b.Loop(); i++ {
		for j := range ways {
			before = ways[(i+j)%len(ways)].try(b, a, before)
		}
	}
	endsWell(b, a)
	reportWays(b, ways)
}

// try measures one way of observing a target.
func (w *way) try(b *testing.B, a *testenv.App, before phase) phase {
	b.Helper()
	return w.compare(before, func() (phase, *quality) {
		o := w.start(b, a.PID)
		during := measure(b, a, o)
		seen, err := o.end()
		if err != nil {
			b.Fatalf("%s: %v", w.name, err)
		}
		return during, seen
	}, func() phase { return measure(b, a, nil) })
}

// compare measures a phase that is observed and one that is not, again and again
// until nobody else disturbs them, and returns the one that came last.
func (w *way) compare(before phase, observed func() (phase, *quality), alone func() phase) phase {
	for n := 0; ; n++ {
		during, seen := observed()
		after := alone()
		disturbed := max(before.others, during.others, after.others) > quiet
		if !disturbed || n == repeats {
			w.add(&before, &during, &after, seen)
			if disturbed {
				w.disturbed++
			}
			return after
		}
		before = after
	}
}

func (w *way) add(before, during, after *phase, seen *quality) {
	lost := func(a, b, c float64) float64 { return 100 * (1 - 2*b/(a+c)) }
	w.lost = append(w.lost, lost(before.perSecond, during.perSecond, after.perSecond))
	w.lostCPU = append(w.lostCPU, lost(before.perCPUSecond, during.perCPUSecond, after.perCPUSecond))
	w.observerCPU = append(w.observerCPU, 100*during.observerCPU)
	w.seen.add(seen)
}

// mean returns the mean and its standard error.
func mean(x []float64) (m, e float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	for _, v := range x {
		e += (v - m) * (v - m)
	}
	return m, math.Sqrt(e / float64(len(x)) / float64(max(1, len(x)-1)))
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// reportWays prints a table and reports the losses.
func reportWays(b *testing.B, ways []*way) {
	b.Helper()
	var buf bytes.Buffer
	t := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "way\tphases\tdisturbed\tthroughput lost %\t±\tmedian\tof a CPU second %\t±\tmedian\town CPU %\town MB\tKB a phase\tsamples\tlost\tlate\tbroken\trepaired\t"+
		"managed frames\tnamed %\tnative\tnamed %\tto the base %\t\n")
	for _, w := range ways {
		lost, e := mean(w.lost)
		lostCPU, eCPU := mean(w.lostCPU)
		own, _ := mean(w.observerCPU)
		s := &w.seen
		fmt.Fprintf(t, "%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.2f\t%d\t%.2f\t%.2f\t\n",
			w.name, len(w.lost), w.disturbed, lost, e, median(w.lost), lostCPU, eCPU, median(w.lostCPU), own, s.Memory>>20, s.Bytes>>10/int64(len(w.lost)),
			s.Samples, s.Lost, s.Late, s.Broken, s.Repaired,
			s.Managed.Frames, s.Managed.percent(), s.Native.Frames, s.Native.percent(), 100*float64(s.Whole)/float64(max(1, s.Samples)))
		b.ReportMetric(lost, w.name+"-lost-%")
		b.ReportMetric(own, w.name+"-own-%")
	}
	_ = t.Flush() // a Buffer takes everything
	b.ReportMetric(0, "ns/op")
	b.Logf("phases of %v; a processor is 100 %%\n%s", phaseTime, &buf)
}

func (n *named) percent() float64 { return 100 * float64(n.Named) / float64(max(1, n.Frames)) }
