package snapshot

import (
	"slices"
	"time"
)

// Pauses are statistics of stops: how many there were, and how long threads were
// kept from running.
type Pauses struct {
	Count         int // stops
	P50, P99, Max time.Duration
}

// Pauses returns the statistics of the snapshot's stops.
func (s *Snapshot) Pauses() Pauses { return SumPauses(s.Stops) }

// SumPauses returns the statistics of stops, given each stop's length. The quantiles
// are not interpolated: the q-quantile of n stops is the ⌈q·n⌉-th shortest.
func SumPauses(stops []time.Duration) Pauses {
	if len(stops) == 0 {
		return Pauses{}
	}
	s := slices.Sorted(slices.Values(stops))
	at := func(percent int) time.Duration { return s[(len(s)*percent+99)/100-1] }
	return Pauses{Count: len(s), P50: at(50), P99: at(99), Max: s[len(s)-1]}
}
