package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// TestWatchdogLetsGo: the tracer is late with a stopped thread.
func TestWatchdogLetsGo(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	p.Watchdog = 5 * time.Millisecond
	var c target.Capture
	var lates []time.Duration
	const n = 50
	busy := 0 // releases that a busy machine caused
	for i := range n {
		_ = p.Trace(func(tr *Tracer) error {
			sh, err := tr.ready()
			if err != nil {
				t.Fatal(err)
			}
			atomic.StoreInt64(&sh.linger, int64(10*time.Second))
			atomic.StoreUint32(&sh.breaks, 1<<stepCopied)
			if err = tr.Capture(&target.Request{TID: pr.arg}, &c); !errors.Is(err, ErrWatchdog) {
				t.Fatalf("a tracer that sleeps: %v", err)
			}
			if i == 0 {
				t.Log(err)
			}
			atomic.StoreUint32(&sh.breaks, 0)
			late := time.Duration(atomic.LoadInt64(&sh.late))
			if late < p.Watchdog {
				t.Errorf("let go too early, after %v", late)
			}
			lates = append(lates, late)
			return nil
		})
		untraced(t, p, pr.arg)
		err := p.Capture(&target.Request{TID: pr.arg}, &c)
		for ; errors.Is(err, ErrWatchdog) && busy < n/2; busy++ {
			err = p.Capture(&target.Request{TID: pr.arg}, &c)
		}
		if err != nil {
			t.Fatalf("the next request, after %d that a busy machine may have ended: %v", busy, err)
		}
	}
	advances(t, p, pr)
	if p.Released() != n+busy {
		t.Errorf("%d releases, want %d", p.Released(), n+busy)
	}
	slices.Sort(lates)
	t.Logf("limit %v; stopped for: p50 %v, max %v", p.Watchdog, lates[n/2], lates[n-1])
}

// TestWatchdogAwake: the tracer is late at once after a time without requests.
func TestWatchdogAwake(t *testing.T) {
	pr := start(t, nil, "ticks")
	p := open(t, pr)
	var c target.Capture
	if err := p.Capture(&target.Request{TID: pr.pid}, &c); err != nil {
		t.Fatal(err)
	}
	sh := p.tracer.tasks.sh
	if !within(waitLimit, func() bool { return atomic.LoadUint32(&sh.asleep) == 1 }) {
		t.Fatal("the watchdog never sleeps")
	}
	atomic.StoreInt64(&sh.linger, int64(10*time.Second))
	atomic.StoreUint32(&sh.breaks, 1<<stepStopped)
	if err := p.Capture(&target.Request{TID: pr.pid}, &c); !errors.Is(err, ErrWatchdog) {
		t.Fatal(err)
	}
}

// TestCloseLeavesNothing looks for tasks after Close, and before.
func TestCloseLeavesNothing(t *testing.T) {
	pr := start(t, nil, "ticks")
	before := leftTasks(unix.Getpid())
	for range 20 {
		p := open(t, pr)
		var c target.Capture
		if err := p.Capture(&target.Request{TID: pr.pid}, &c); err != nil {
			t.Fatal(err)
		}
		sh := p.tracer.tasks.sh
		watchdog, tracer := int(sh.watchdog), int(atomic.LoadInt32(&sh.tracer))
		if len(leftTasks(watchdog)) != 2 { // and its child
			t.Fatalf("tasks: %q", leftTasks(watchdog))
		}
		if sid, err := unix.Getsid(tracer); err != nil || sid != watchdog {
			t.Errorf("the tracer's session is %d, %v, not the watchdog's, %d", sid, err, watchdog)
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if left := leftTasks(watchdog, tracer); len(left) != 0 {
			t.Fatalf("after Close: %q", left)
		}
	}
	if after := leftTasks(unix.Getpid()); len(after) > len(before) {
		t.Errorf("left behind: %q", after)
	}
}

// TestTracerInside runs the capture tests with the tracer in a thread of ours, as where Yama lets
// only ancestors trace.
func TestTracerInside(t *testing.T) {
	layer.Live(t)
	openInside = true
	defer func() { openInside = false }()
	for _, tt := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"copies", TestCaptureCopiesRegistersStackAndHead}, {"signals", TestNoSignalIsLost},
		{"dying", TestThreadsThatDie}, {"group stop", TestGroupStopStays}, {"not stopping", TestThreadThatDoesNotStop},
		{"exec", TestExecDuringCapture}, {"all", TestCaptureAll}, {"blocked", TestCaptureAllBlocked},
		{"meanwhile", TestCaptureAllRanMeanwhile}, {"one instant", TestCaptureAllIsOneInstant},
		{"traced", TestAlreadyTraced}, {"held", TestHold}, {"held too long", TestHoldEnds},
		{"not held", TestHoldRefused}, {"headless", TestMainThreadHasEnded},
	} {
		t.Run(tt.name, tt.f)
	}
}

// TestCaptureEach runs the capture tests with all threads of the process captured at once, by
// either tracer.
func TestCaptureEach(t *testing.T) {
	layer.Live(t)
	capturing = captureAmongAll
	defer func() { capturing, openInside = (*Tracer).Capture, false }()
	for _, openInside = range []bool{false, true} {
		for _, tt := range []struct {
			name string
			f    func(*testing.T)
		}{
			{"copies", TestCaptureCopiesRegistersStackAndHead}, {"signals", TestNoSignalIsLost},
			{"dying", TestThreadsThatDie}, {"group stop", TestGroupStopStays},
			{"not stopping", TestThreadThatDoesNotStop}, {"exec", TestExecDuringCapture},
			{"traced", TestAlreadyTraced}, {"headless", TestMainThreadHasEnded},
			{"signal stack", TestSignalStackAndExtra},
		} {
			t.Run(fmt.Sprintf("%s/inside=%v", tt.name, openInside), tt.f)
		}
	}
}

// TestTaskFunctions checks the tasks' functions by the rule of task.go that only the source shows
// where the race detector is off.
func TestTaskFunctions(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		for i, line := range lines {
			if line != "//go:nosplit" {
				continue
			}
			n++
			if lines[i-1] != "//go:norace" {
				t.Errorf("%s: %s is nosplit, but not norace", file, lines[i+1])
			}
		}
		if slices.Contains([]string{"task.go", "serve.go", "each.go", "instant.go", "watchdog.go"}, file) &&
			strings.Contains(string(b), `"sync`) {
			t.Errorf("%s imports sync", file)
		}
	}
	if n < 30 {
		t.Errorf("only %d nosplit functions", n)
	}
}
