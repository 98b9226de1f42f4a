package pace

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPace: at any time, no more is used than the share of the time that has passed, plus the
// largest credit, plus one step. As long as there is something to do, not much less is used.
func TestPace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0.001, 2).Draw(t, "share")
		var all, ours time.Duration // CPU time of everything, and of the activity
		p := Pace{Share: share, Used: func() time.Duration { return all }}
		waits := time.Duration(0) // while others had the CPU
		timed := rapid.Bool().Draw(t, "clock")
		if timed {
			p.Clock = func() time.Duration { return all + waits }
		}
		limit := time.Duration(share * float64(maxCredit))
		step := max(1, limit/time.Duration(rapid.IntRange(1, 50).Draw(t, "parts")))
		start := time.Duration(rapid.Int64Range(1, 1<<50).Draw(t, "start"))
		now, idle := start, time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "rounds") {
			wait := time.Duration(rapid.Int64Range(1, int64(3*maxCredit)).Draw(t, "wait"))
			now += wait
			idle += max(0, wait-maxCredit) // no credit is saved up for this time
			all += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "others"))
			p.Begin(now)
			for !p.Spent() {
				all += step
				ours += step
				waits += time.Duration(rapid.Int64Range(0, int64(limit)).Draw(t, "wait in between"))
			}
			p.End()
			earned := time.Duration(share * float64(now-start))
			if ours > earned+limit+step+time.Microsecond {
				t.Fatalf("used %v, earned %v, saved at most %v, a step is %v", ours, earned, limit, step)
			}
			if timed {
				continue // the clock may have counted time of others
			}
			if least := earned - time.Duration(share*float64(idle)); ours < least-time.Microsecond {
				t.Fatalf("used %v, could have used %v", ours, least)
			}
		}
	})
}

// TestPaceDebt: an unforeseeable use is paid back, but not for ever.
func TestPaceDebt(t *testing.T) {
	var used time.Duration
	p := Pace{Share: 0.1, Used: func() time.Duration { return used }}
	now := time.Second
	p.Begin(now)
	used += time.Hour
	p.End()
	rounds := 0
	for p.Begin(now); p.Spent(); p.Begin(now) {
		now += 10 * time.Millisecond
		if rounds++; rounds > 200 {
			t.Fatal("nothing may be used two seconds later")
		}
	}
	if rounds < 90 {
		t.Errorf("only %v were waited for", time.Duration(rounds)*10*time.Millisecond)
	}
}
