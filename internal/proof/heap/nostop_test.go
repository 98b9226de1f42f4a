package heap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestNoStop: reading a heap stops no thread. A thread that never waits measures the gaps in its own run, and the
// kernel counts how often the thread gives up the CPU voluntarily, as a stopped thread does. With a stop, both figures
// show the stop.
func TestNoStop(t *testing.T) {
	layer.Proof(t)
	a := testenv.Start(t, "heap", testenv.Options{Args: []string{"--megabytes", "100"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	a.Ask("spin")
	thread := threadNamed(t, a.PID, "spinner")
	time.Sleep(300 * time.Millisecond) // until the JIT has compiled the loop for the last time
	sp := &spinner{t: t, a: a, p: p, thread: thread}
	looks := layer.Size(5, 100)
	waited, gap, _ := sp.look(looks, clrsnap.HeapOptions{})
	if waited != 0 {
		t.Errorf("a thread has been stopped %d times in %d looks", waited, looks)
	}
	stopped, longest, pause := sp.look(looks, clrsnap.HeapOptions{Stop: true, MaxPause: time.Minute})
	t.Logf("%d looks without a stop: the thread has waited %d times, and its longest gap is %v; with a stop %d times "+
		"and %v, of a pause of %v", looks, waited, gap, stopped, longest, pause)
	if stopped < looks {
		t.Errorf("with a stop the thread has waited %d times in %d looks: the test shows nothing", stopped, looks)
	}
	if longest < pause/2 {
		t.Errorf("with a stop the thread's longest gap was %v, of a pause of %v", longest, pause)
	}
	livetest.EndsWell(t, a)
}

// spinner is the thread that never waits.
type spinner struct {
	t      *testing.T
	a      *testenv.App
	p      *clrsnap.Process
	thread string // its folder in /proc
}

// ask returns the thread's longest gap since the last question, and the number of measurements.
func (s *spinner) ask() (gap time.Duration, rounds uint64) {
	s.t.Helper()
	micros, measured, _ := strings.Cut(s.a.Ask("gap")[0], " ")
	return time.Duration(number(s.t, micros)) * time.Microsecond, number(s.t, measured)
}

// look reads the heap until the thread had a CPU during so many reads. It returns how often the thread has given up
// the CPU voluntarily, the thread's longest gap, and the longest known pause.
func (s *spinner) look(times int, o clrsnap.HeapOptions) (waited int, gap, pause time.Duration) {
	s.t.Helper()
	before := switches(s.t, s.thread)
	_, rounds := s.ask()
	for n := 0; times > 0; n++ {
		if n > 200+20*times {
			s.t.Fatal("the thread gets no CPU")
		}
		h := take(s.t, s.p, o)
		if o.Stop {
			if pause = max(pause, h.Stop.Pause); !h.Stop.Exact {
				s.t.Errorf("%+v", h.Stop)
			}
		}
		g, now := s.ask()
		if gap = max(gap, g); now > rounds {
			times--
		}
		rounds = now
	}
	return switches(s.t, s.thread) - before, gap, pause
}

// threadNamed is a thread's folder in /proc.
func threadNamed(t *testing.T, pid int, name string) string {
	t.Helper()
	var found string
	livetest.Await(t, "the thread "+name, func() bool {
		all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, dir := range all {
			if b, err := os.ReadFile(dir + "/comm"); err == nil && strings.TrimSpace(string(b)) == name {
				found = dir
			}
		}
		return found != ""
	})
	return found
}

// switches is how often a thread has given up the CPU voluntarily.
func switches(t *testing.T, thread string) int {
	t.Helper()
	b, err := os.ReadFile(thread + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not count how often threads wait")
	return 0
}
