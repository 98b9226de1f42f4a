package cost

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"
)

// What a recorder is held or let go on for, and how long the program has to notice.
const (
	pulseTime   = 150 * time.Millisecond
	pulseSettle = 15 * time.Millisecond
)

// BenchmarkRecordPulse measures what clrsnap itself takes from a web server while it records, more finely than
// BenchmarkRecordCost can: one recorder runs all the time, and SIGSTOP holds it in every other window of a sixth of a
// second. What a virtual machine can do does not change as fast as that. The kernel goes on taking samples meanwhile,
// so its part, which BenchmarkRecordCost shows with perf, is not in the figures. What waits in its buffers at the end
// of a hold is read then, so the figures are rather too high.
func BenchmarkRecordPulse(b *testing.B) {
	exe := livetest.Command(b)
	a, s, head := startWeb(b)
	ways := wanted(b,
		&way{key: "nothing", name: "nothing"},
		recordWay("cpu-99", exe, "--mode", "cpu", "-r", "99"),
		recordWay("default", exe),
		recordWay("never", exe, "--async", "never"),
		recordWay("cpu-999", exe, "--mode", "cpu", "-r", "999"),
	)
	for i := 0; b.Loop(); i++ {
		for j := range ways {
			s.pulse(b, ways[(i+j)%len(ways)])
		}
	}
	s.stopAsking(b)
	head += fmt.Sprintf(" .NET %s. Four windows of %v make a pair: clrsnap is held with SIGSTOP in the first "+
		"and the last.",
		runtimeOf(ways), pulseTime)
	reportWays(b, head, webLoad.unit, ways)
	livetest.EndsWell(b, a)
}

// pulses is how many fours of windows one recorder is used for: half a minute, as long as a recording is by default.
const pulses = 42

// pulse compares windows in fours: held, on, on, held.
func (s *subject) pulse(b *testing.B, w *way) {
	b.Helper()
	s.keepAsking(b)
	s.awaitQuiet(b)
	var o *observer.Observer
	hold := func(bool) {}
	seen := new(observer.Quality)
	if w.start != nil {
		o = w.start(b, s.pid)
		hold = func(held bool) {
			signal := syscall.SIGCONT
			if held {
				signal = syscall.SIGSTOP
			}
			if err := o.Cmd.Process.Signal(signal); err != nil {
				b.Fatal(fmt.Errorf("%s: %w", w.name, err))
			}
		}
	}
	time.Sleep(2 * settleTime)
	for range pulses {
		var p [4]phase
		for i, held := range []bool{true, false, false, true} {
			hold(held)
			p[i] = s.window(b, o)
		}
		before, during, after := p[0], p[1], p[3]
		during.perSecond = (p[1].perSecond + p[2].perSecond) / 2
		during.cpuPerUnit = (p[1].cpuPerUnit + p[2].cpuPerUnit) / 2
		during.observerCPU = (p[1].observerCPU + p[2].observerCPU) / 2
		// Four windows together are long enough for the kernel's count of what others use.
		if s.others = (p[0].others + p[1].others + p[2].others + p[3].others) / 4; s.others > *quietFlag {
			w.disturbed++
			continue
		}
		before.others, during.others, after.others = s.others, s.others, s.others
		w.add(&before, &during, &after, seen)
	}
	hold(false)
	if o != nil {
		q, err := o.End()
		if err != nil {
			b.Fatalf("%s: %v", w.name, err)
		}
		w.seen.Add(q)
	}
}

// window takes the figures of one window.
func (s *subject) window(b *testing.B, o *observer.Observer) phase {
	b.Helper()
	own := func() time.Duration {
		if o == nil {
			return 0
		}
		return o.CPU(b)
	}
	time.Sleep(pulseSettle)
	used, known, all, cpu := own(), s.cpu(b), livetest.MachineCPU(b), livetest.CPU(b, s.pid)
	units, at := s.ask()
	time.Sleep(pulseTime)
	units2, at2 := s.ask()
	used, known, all = own()-used, s.cpu(b)-known, livetest.MachineCPU(b)-all
	cpu = livetest.CPU(b, s.pid) - cpu
	done, d := float64(units2-units), (at2 - at).Seconds()
	return phase{done / d, cpu.Seconds() / done, used.Seconds() / d, (all - used - known).Seconds() / d}
}
