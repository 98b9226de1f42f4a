package live

import (
	"math/rand/v2"
	"testing"
	"time"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target"
)

// TestNotRunSince: a thread that has not run, by NotRunSince, has changed nothing meanwhile.
func TestNotRunSince(t *testing.T) {
	pr := start(t, nil, "ticks")
	p := open(t, pr)
	rested, ran := 0, 0
	for i := 0; i < 3000 || rested == 0 || ran == 0; i++ {
		if i == 100_000 {
			t.Fatalf("it rested %d times and ran %d times", rested, ran)
		}
		count := p.RunCount(pr.pid)
		before := counter(t, p, pr, 0)
		time.Sleep(time.Duration(rand.Int64N(int64(300 * time.Microsecond))))
		after := counter(t, p, pr, 0)
		if !p.NotRunSince(pr.pid, count) {
			ran++
		} else if rested++; before != after {
			t.Fatalf("it has not run since %q, but its counter has grown from %d to %d", count, before, after)
		}
	}
	if p.NotRunSince(pr.pid, "") {
		t.Error("it has not run since nobody knows when")
	}
	t.Logf("it rested %d times and ran %d times", rested, ran)
}

// TestNotRunSinceBusy: nothing is known of a thread that does not leave its CPU.
func TestNotRunSinceBusy(t *testing.T) {
	pr := start(t, nil, "spin")
	p := open(t, pr)
	for range 1000 {
		if count := p.RunCount(pr.arg); p.NotRunSince(pr.arg, count) {
			t.Fatalf("a busy thread has not run since %q", count)
		}
	}
	if got := p.RunCount(1 << 30); got != "" {
		t.Errorf("%q of no thread", got)
	}
	p.Close()
	if p.NotRunSince(pr.arg, "1 1 1") {
		t.Error("after the end")
	}
}

// TestStillBlocked: a thread that is still blocked has changed nothing since its capture. For a
// thread that has run, StillBlocked returns the time on a CPU or waiting for a CPU.
func TestStillBlocked(t *testing.T) {
	pr := start(t, nil, "ticks")
	p := open(t, pr)
	if still, ran := p.StillBlocked(pr.pid); still || ran != 0 {
		t.Errorf("before a capture: %v, %v", still, ran)
	}
	rested, ran, ready := 0, 0, time.Duration(0)
	for i := 0; rested < 20 || ran < 20 || ready == 0; i++ {
		if i == 100_000 {
			t.Fatalf("it rested %d times and ran %d times", rested, ran)
		}
		var c target.Capture
		if err := p.TryBlocked(&target.Request{TID: pr.pid}, &c); err != nil {
			continue // the thread runs
		}
		before := counter(t, p, pr, 0)
		time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond))))
		after := counter(t, p, pr, 0)
		count := p.RunCount(pr.pid)
		still, has := p.StillBlocked(pr.pid)
		same := count == p.RunCount(pr.pid)
		then, now := procfs.ParseSchedstat([]byte(c.Proof)), procfs.ParseSchedstat([]byte(count))
		switch {
		case still && before != after:
			t.Fatalf("it is still blocked, but its counter has grown from %d to %d", before, after)
		case still && has != 0:
			t.Fatalf("it is still blocked, and has run for %v", has)
		case still:
			rested++
		case has > 0 && same:
			if want := now.Running + now.Ready - then.Running - then.Ready; has != want {
				t.Fatalf("it is said to have run or waited for a CPU for %v, not for %v: %q, then %q", has, want,
					c.Proof, count)
			}
			ran++
			ready += now.Ready - then.Ready
		}
	}
}
