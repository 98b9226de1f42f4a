package cost

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/proof/observer"

	"golang.org/x/sys/unix"
)

// What a recorder is held or let go on for, and how long the program has to notice that it is held.
const (
	pulseTime   = 150 * time.Millisecond
	pulseSettle = 15 * time.Millisecond
)

// BenchmarkRecordPulse measures what recording takes from a web server more finely than BenchmarkRecordCost can: one
// recorder runs all the time, and is held in every other pair of windows of a sixth of a second. What a virtual machine
// can do, and how the threads of a server meet, does not change as fast as that.
func BenchmarkRecordPulse(b *testing.B) {
	exe := livetest.Command(b)
	a, s, head := startWeb(b)
	ways := recordWays(b, exe)
	for i := 0; b.Loop(); i++ {
		for j := range ways {
			s.pulse(b, ways[(i+j)%len(ways)])
		}
	}
	s.stopAsking(b)
	head += fmt.Sprintf(" .NET %s. Four windows of %v make a pair: the recorder is stopped, and its events are "+
		"disabled, in the first and the last.", runtimeOf(ways), pulseTime)
	reportWays(b, head, webLoad.unit, ways)
	livetest.EndsWell(b, a)
}

// hold stops a recorder and disables its perf events until release is called, so that neither it nor the kernel does
// anything for the recording.
func hold(b *testing.B, pid int) (release func()) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatalf("holding the recorder: %v", err)
		}
	}
	process, err := unix.PidfdOpen(pid, 0)
	must(err)
	defer unix.Close(process)
	must(unix.Kill(pid, unix.SIGSTOP))
	must(unix.Waitid(unix.P_PIDFD, process, nil, unix.WSTOPPED, nil)) // until it opens and closes no file any more
	files := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(files)
	must(err)
	var events []int
	for _, e := range entries {
		if link, _ := os.Readlink(files + "/" + e.Name()); link != "anon_inode:[perf_event]" {
			continue
		}
		number, err := strconv.Atoi(e.Name())
		must(err)
		event, err := unix.PidfdGetfd(process, number, 0)
		must(err)
		must(unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_DISABLE, 0))
		events = append(events, event)
	}
	if len(events) == 0 {
		b.Fatal("holding the recorder: it has no perf events")
	}
	return func() {
		for _, event := range events {
			must(unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_ENABLE, 0))
			must(unix.Close(event))
		}
		must(unix.Kill(pid, unix.SIGCONT))
	}
}

// pulses is how many fours of windows one recorder is used for: half a minute, as long as a recording is by default.
const pulses = 42

// pulse compares windows in fours: held, on, on, held.
func (s *subject) pulse(b *testing.B, w *way) {
	b.Helper()
	s.keepAsking(b)
	s.awaitQuiet(b)
	var o *observer.Observer
	pause := func() (resume func()) { return func() {} }
	seen := new(observer.Quality)
	if w.start != nil {
		o = w.start(b, s.pid)
		pause = func() (resume func()) {
			defer time.Sleep(pulseSettle)
			return hold(b, o.Cmd.Process.Pid)
		}
	}
	time.Sleep(2 * settleTime)
	resume := pause()
	for range pulses {
		var p [4]phase
		p[0] = s.window(b, o, func() {})
		p[1], p[2] = s.window(b, o, resume), s.window(b, o, func() {})
		resume = pause()
		p[3] = s.window(b, o, func() {})
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
	resume()
	if o != nil {
		q, err := o.End()
		if err != nil {
			b.Fatalf("%s: %v", w.name, err)
		}
		w.seen.Add(q)
	}
}

// window takes the figures of one window. begin is called at its very start: what a recorder does as soon as it is let
// go on is what it could not do before it was held.
func (s *subject) window(b *testing.B, o *observer.Observer, begin func()) phase {
	b.Helper()
	own := func() time.Duration {
		if o == nil {
			return 0
		}
		return o.CPU(b)
	}
	used, known, all, cpu := own(), s.cpu(b), livetest.MachineCPU(b), livetest.CPU(b, s.pid)
	units, at := s.ask()
	begin()
	time.Sleep(pulseTime)
	units2, at2 := s.ask()
	used, known, all = own()-used, s.cpu(b)-known, livetest.MachineCPU(b)-all
	cpu = livetest.CPU(b, s.pid) - cpu
	done, d := float64(units2-units), (at2 - at).Seconds()
	return phase{done / d, cpu.Seconds() / done, used.Seconds() / d, (all - used - known).Seconds() / d}
}
