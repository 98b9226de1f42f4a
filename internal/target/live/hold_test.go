package live

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

// holdLimit is for tests that do not use up the time of a hold.
const holdLimit = 20 * time.Second

// TestHold: no held thread runs, whatever it was doing, and all threads go on afterwards.
func TestHold(t *testing.T) {
	for _, mode := range []string{"spin", "relay 8", "ticks", "storm", "dying", "headless"} {
		t.Run(mode, func(t *testing.T) {
			pr := start(t, nil, strings.Fields(mode)...)
			p := open(t, pr)
			p.AllLimit = 10 * time.Second // a busy machine
			advances(t, p, pr)
			var before, after uint64
			states := ""
			const held = 20 * time.Millisecond
			h, err := p.Hold(holdLimit, func(all Standing) {
				before = counter(t, p, pr, 0)
				time.Sleep(held)
				after = counter(t, p, pr, 0)
				tids, _ := p.living()
				for _, tid := range tids {
					states += string(taskState(pr.pid, tid))
				}
				if !all.Still() {
					t.Error("they go on already")
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if after != before || strings.Trim(states, "t") != "" || len(states) == 0 {
				t.Errorf("held threads have counted from %d to %d; their states are %q", before, after, states)
			}
			if h.Pause < held || h.Threads < 1 || h.Stops < 1 {
				t.Errorf("%+v", h)
			}
			advances(t, p, pr)
			for _, tid := range []int{pr.pid, pr.arg} {
				if s, err := p.taskStatus(tid); err == nil && s.TracerPID != 0 {
					t.Errorf("thread %d is still traced", tid)
				}
			}
		})
	}
}

// TestHoldEnds: threads go on when the time is used up, the holder notices, and other threads can
// be held afterwards.
func TestHoldEnds(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	const limit = 100 * time.Millisecond
	testenv.UntilSeen(t, func() string {
		held := false
		h, err := p.Hold(limit, func(all Standing) {
			held = true
			if !within(waitLimit, func() bool { return !all.Still() }) {
				t.Error("nobody says that they go on")
			}
			advances(t, p, pr)
		})
		if !held {
			return "threads that stop in time" // on a busy machine a thread may get no CPU in which to stop
		}
		// The limit is counted from the first thread's stop, the pause from the last one's.
		if t.Logf("held for %v of %v: %v", h.Pause, limit, err); !errors.Is(err, ErrHeldTooLong) {
			t.Errorf("%v, %+v", err, h)
		}
		if h.Pause < limit/2 {
			return "threads that stop soon one after the other"
		}
		return ""
	})
	for range 3 {
		if _, err := p.Hold(holdLimit, func(Standing) {}); err != nil {
			t.Error(err)
		}
	}
	var c target.Capture
	if err := p.Capture(&target.Request{TID: pr.arg}, &c); err != nil {
		t.Error("a thread cannot be captured afterwards:", err)
	}
	advances(t, p, pr)
}

// TestHoldLost: threads go on when another process kills the tracer, the holder notices, and the
// next request gets another tracer. If the target is killed, nothing waits for it.
func TestHoldLost(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	_, err := p.Hold(holdLimit, func(all Standing) {
		if err := unix.Kill(int(atomic.LoadInt32(&p.tracer.tasks.sh.tracer)), unix.SIGKILL); err != nil {
			t.Error(err)
		}
		if !within(waitLimit, func() bool { return !all.Still() }) {
			t.Error("nobody says that they go on")
		}
		advances(t, p, pr)
	})
	if !errors.Is(err, ErrTracerLost) {
		t.Error(err)
	}
	h, err := p.Hold(holdLimit, func(Standing) {})
	if err != nil || h.Threads != 2 {
		t.Errorf("afterwards: %v, %+v", err, h)
	}
	p.StopLimit = DefaultStopLimit // a thread that was killed is waited for
	begin := time.Now()
	_, err = p.Hold(holdLimit, func(Standing) {
		if err := unix.Kill(pr.pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		var b [8]byte
		if !within(waitLimit, func() bool { return p.ReadMemory(b[:], pr.cnt) != nil }) {
			t.Error("the memory of a process that was killed is still read")
		}
	})
	if took := time.Since(begin); took > holdLimit/2 {
		t.Errorf("it took %v to give up a process that was killed: %v", took, err)
	}
	pr.kill()
	if _, err = p.Hold(holdLimit, func(Standing) {}); !errors.Is(err, ErrExited) && !errors.Is(err, ErrNotStopping) {
		t.Error(err)
	}
}

// TestHoldRefused: the error names a thread that does not stop, or that another process traces.
// The other threads go on.
func TestHoldRefused(t *testing.T) {
	pr := start(t, nil, "vfork", "3600000")
	p := open(t, pr)
	p.StopLimit, p.AllLimit = DefaultStopLimit, 50*time.Millisecond
	_, err := p.Hold(holdLimit, func(Standing) { t.Error("not all threads can have stopped") })
	var te *target.ThreadError
	if !errors.Is(err, ErrNotStopping) || !errors.As(err, &te) || te.TID != pr.arg {
		t.Errorf("a thread that waits for its child: %v", err)
	}
	pr = start(t, nil, "ticks")
	start(t, nil, "tracer", fmt.Sprint(pr.pid))
	p = open(t, pr)
	if _, err := p.Hold(holdLimit, func(Standing) {}); !errors.Is(err, ErrTraced) {
		t.Errorf("a thread that another process traces: %v", err)
	}
	advances(t, p, pr)
}

// TestHolderDies: held threads go on when the holding process is killed, or is stopped for too
// long.
func TestHolderDies(t *testing.T) {
	for signal, limit := range map[unix.Signal]time.Duration{unix.SIGKILL: time.Hour, unix.SIGSTOP: 3 * time.Second} {
		t.Run(unix.SignalName(signal), func(t *testing.T) {
			pr := start(t, nil, "spin")
			p := open(t, pr)
			testenv.UntilSeen(t, func() string {
				cmd := holder.Command(pr.pid, limit)
				if said := testenv.StartSaying(t, cmd); said != "held" {
					return "threads that stop in time" // on a busy machine a thread may get no CPU in which to stop
				}
				before := counter(t, p, pr, 0)
				time.Sleep(20 * time.Millisecond)
				if counter(t, p, pr, 0) != before {
					return "held threads" // this process may get no CPU before the end of the hold
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				advances(t, p, pr)
				return ""
			})
		})
	}
}

// holder is the process that holds threads and dies.
var holder = role.New("holder", func(a role.Args) error {
	p, err := Open(a.Int(0))
	if err != nil {
		return err
	}
	limit, err := time.ParseDuration(a[1])
	if err != nil {
		return err
	}
	_, err = p.Hold(limit, func(Standing) {
		fmt.Println("held")
		time.Sleep(time.Hour)
	})
	return err
})
