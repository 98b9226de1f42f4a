package profile

import (
	"slices"
	"time"
)

// Pauses sums up how long stops kept threads from running.
type Pauses struct {
	Count         int // stops
	P50, P99, Max time.Duration
}

// Pauses sums up the stops of a snapshot.
func (s *Snapshot) Pauses() Pauses { return SumPauses(s.Stops) }

// SumPauses sums up stops. The quantiles are times that were measured: of n stops
// the one at place ⌈q·n⌉, counted from the shortest.
func SumPauses(stops []time.Duration) Pauses {
	if len(stops) == 0 {
		return Pauses{}
	}
	s := slices.Sorted(slices.Values(stops))
	at := func(percent int) time.Duration { return s[(len(s)*percent+99)/100-1] }
	return Pauses{Count: len(s), P50: at(50), P99: at(99), Max: s[len(s)-1]}
}
