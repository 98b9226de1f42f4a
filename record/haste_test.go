package record

import (
	"slices"
	"testing"
	"time"
)

// TestHaste: the priority is raised when recording begins and after late wakes, and lowered after some
// time without late wakes.
func TestHaste(t *testing.T) {
	const (
		start = time.Hour
		step  = 20 * time.Millisecond
	)
	var now time.Duration
	type change struct {
		high bool
		at   time.Duration // since the start
	}
	var got []change
	ready := time.Second
	h := haste{
		raise: func(high bool) { got = append(got, change{high, now - start}) },
		ready: func() time.Duration { return ready },
	}
	stopped := false
	run := func(until, late time.Duration) {
		for now += step; now <= start+until; now += step {
			if !stopped {
				ready += late
			}
			h.woken(now, now-late)
		}
		now -= step
	}
	now = start
	h.begin(now, now+time.Second)
	run(2*time.Second, timerStep)                      // a timer can be so late
	run(3*time.Second, timerStep+500*time.Microsecond) // 5 ms in a window
	run(3*time.Second+step, lateMost+timerStep)        // once
	run(15*time.Second, 0)
	stopped = true
	run(17*time.Second, time.Second) // the recording was not ready
	stopped = false
	run(19*time.Second, timerStep) // threads often have no CPU for so long
	stopped = true
	run(19*time.Second+step, 165*time.Millisecond)
	stopped = false
	run(20*time.Second, 0)
	run(21*time.Second, 3*timerStep) // again and again
	run(40*time.Second, 0)
	want := []change{
		{true, 0}, {false, time.Second},
		{true, 3*time.Second + step}, {false, 13*time.Second + step},
	}
	if len(got) != 6 || !slices.Equal(got[:4], want) {
		t.Fatalf("%v, want %v and two more", got, want)
	}
	if up, down := got[4], got[5]; !up.high || up.at < 20*time.Second || up.at > 20*time.Second+hasteWindow+step ||
		down.high || down.at < 30*time.Second || down.at > 31*time.Second+hasteWindow {
		t.Errorf("at last %v", got[4:])
	}
}

// TestHasteOfWaits: a wait is late if it ends after its time, not if it ends before.
func TestHasteOfWaits(t *testing.T) {
	raised := false
	h := haste{raise: func(high bool) { raised = high }, ready: func() time.Duration { return 0 }, until: 1}
	for now := time.Second; now < 10*time.Second; now += 10 * time.Millisecond {
		h.woken(now, now+time.Second)
	}
	if raised {
		t.Error("raised")
	}
	if h.woken(11*time.Second, 11*time.Second-100*time.Millisecond); !raised {
		t.Error("not raised after a wait that ended 100 ms too late")
	}
}

// TestHasteAsksSeldom: the ready times of threads come from many files, so they are not read at each
// turn.
func TestHasteAsksSeldom(t *testing.T) {
	asked := 0
	h := haste{raise: func(bool) {}, ready: func() time.Duration { asked++; return time.Second }}
	h.begin(time.Second, time.Second)
	asked = 0
	const takes = time.Minute
	for now := time.Second; now < time.Second+takes; now += 10 * time.Millisecond {
		h.woken(now, now)
	}
	if most := int(takes/readyEvery) + 1; asked < 1 || asked > most {
		t.Errorf("asked %d times in %v, want %d at most", asked, takes, most)
	}
}
