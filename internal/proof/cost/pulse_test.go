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

// How long a recorder is held and let go on, and how long the program has to notice the hold. A recorder does the
// work due once a second all the same, late: the shorter the hold, the less of this work counts twice.
const (
	heldTime    = 150 * time.Millisecond
	livelyTime  = 450 * time.Millisecond
	pulseSettle = 15 * time.Millisecond
)

// BenchmarkRecordPulse measures what recording takes from a web server, more finely than BenchmarkRecordCost can:
// one recorder runs all the time, and is held for a sixth of a second in each two thirds. The speed of a virtual
// machine, and the rhythm of a server's threads, do not change as fast.
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
	head += fmt.Sprintf(" .NET %s. Each window of %v, in which the recorder is stopped and its events are "+
		"disabled, is compared with those of %v before and after it.", runtimeOf(ways), heldTime, livelyTime)
	reportWays(b, head, webLoad.unit, ways)
	livetest.EndsWell(b, a)
}

// hold stops a recorder and disables its perf events until release is called, so that neither the recorder nor the
// kernel does anything for the recording.
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
	must(unix.Waitid(unix.P_PIDFD, process, nil, unix.WSTOPPED, nil)) // until the recorder opens and closes no files
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

// pulses is how often one recorder is held: in half a minute, the default length of a recording.
const pulses = 42

// pulse compares windows with a held recorder with the windows before and after.
func (s *subject) pulse(b *testing.B, w *way) {
	b.Helper()
	s.keepAsking(b)
	s.awaitQuiet(b)
	var o *observer.Observer
	pause := func() (resume func()) { return func() {} }
	if w.start != nil {
		o = w.start(b, s.pid)
		pause = func() (resume func()) {
			defer time.Sleep(pulseSettle)
			return hold(b, o.Cmd.Process.Pid)
		}
	}
	time.Sleep(2 * settleTime)
	before := s.window(b, o, livelyTime, func() {})
	for range pulses {
		resume := pause()
		held := s.window(b, o, heldTime, func() {})
		after := s.window(b, o, livelyTime, resume)
		// The windows together are long enough for the kernel's count of the CPU use of others.
		lively := between(&before, &after)
		s.others = lively.others*livelyTime.Seconds() + held.others*heldTime.Seconds()
		if s.others /= (livelyTime + heldTime).Seconds(); s.others <= *quietFlag {
			w.pair(&held, lively, s.others)
		} else {
			w.disturbed++
		}
		before = after
	}
	if o != nil {
		q, err := o.End()
		if err != nil {
			b.Fatalf("%s: %v", w.name, err)
		}
		w.seen.Add(q)
	}
}

// window takes the figures of one window. begin is called at the very start: the work of a recorder right after its
// release is work that the hold has delayed.
func (s *subject) window(b *testing.B, o *observer.Observer, length time.Duration, begin func()) phase {
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
	time.Sleep(length)
	units2, at2 := s.ask()
	used, known, all = own()-used, s.cpu(b)-known, livetest.MachineCPU(b)-all
	cpu = livetest.CPU(b, s.pid) - cpu
	done, d := float64(units2-units), (at2 - at).Seconds()
	return phase{done / d, cpu.Seconds() / done, used.Seconds() / d, (all - used - known).Seconds() / d}
}
