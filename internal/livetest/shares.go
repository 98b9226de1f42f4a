package livetest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"clrsnap/profile"
	"clrsnap/record"
)

// TooBusy is how many CPUs other programs may use. On a machine with no CPUs left, a recording gets so
// few samples that hardly anything follows.
const TooBusy = 0.4

// TooLate is how many turns the timers of the CPUs may miss, as a part of the target's expected
// samples. The target then has fewer samples than expected, or none while it is held up. Chance makes
// a part of 2 % in a recording of 10 s.
const TooLate = 0.05

// Missed is how many turns the timers of the CPUs missed, as far as the number is known, as a part of
// the target's expected samples.
func Missed(r *profile.Recording) float64 {
	var part float64
	for i := range r.Modes {
		if m := &r.Modes[i]; m.Missed > 0 {
			part = max(part, float64(m.Missed)/(m.Rate*r.Cost.TargetCPU.Seconds()))
		}
	}
	return part
}

// StatsLine says how a mode was sampled, and at what cost.
func StatsLine(tb testing.TB, r *profile.Recording, m profile.Mode) string {
	tb.Helper()
	s, ok := r.Mode(m)
	if !ok {
		tb.Fatalf("the recording does not know that %v was sampled", m)
	}
	return fmt.Sprintf("%v for %v: %d samples, %d lost, %d missed, %d late, %d broken, %d repaired; "+
		"the target used %v, we %v and %d MB",
		m, r.Duration.Round(time.Millisecond), s.Samples, s.Lost, s.Missed, s.Late, s.Broken, s.Repaired,
		r.Cost.TargetCPU.Round(time.Millisecond), r.Cost.OwnCPU.Round(time.Millisecond), r.Cost.OwnMemory>>20)
}

// ShareOf is a part in per cent.
func ShareOf(part, all time.Duration) float64 { return 100 * float64(part) / float64(max(1, all)) }

// ByChance is how far the samples of CPU time may be off for a part of the time: four standard
// deviations, where samples at regular times scatter less than independent samples.
func ByChance(part time.Duration) time.Duration {
	const period = float64(time.Second) / record.DefaultRate
	return time.Duration(4 * math.Sqrt(float64(part)*period))
}
