package why

import (
	"maps"
	"slices"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/snapshot"
)

// span is the time between the beginnings of the first and the last look.
func (e *evidence) span() time.Duration {
	if len(e.Looks) == 0 {
		return 0
	}
	return e.Last().At - e.First().At
}

// served is the share of the threads' ready time in which the threads ran, because they had a CPU: from 0 to 1. If
// the share is low, everything takes longer, and the program is not to blame.
func (e *evidence) served() float64 {
	ran, ready := e.ranAndReady()
	if ran+ready <= 0 {
		return 1
	}
	return float64(ran) / float64(ran+ready)
}

// ranAndReady is how long the threads ran, and how long they were ready to run without a CPU, in all.
func (e *evidence) ranAndReady() (ran, ready time.Duration) {
	threads := e.Threads()
	for i := range threads {
		ran, ready = ran+threads[i].Ran, ready+threads[i].Ready
	}
	return ran, ready
}

// blockedIn is the own method in which a thread waits; "": none.
func blockedIn(t *snapshot.Thread) string {
	if f := gather.OwnFrame(t.Frames); f != nil {
		return f.Display
	}
	return ""
}

// sortedBy are the sorted values of a map.
func sortedBy[K comparable, V any](m map[K]V, order func(a, b V) int) []V {
	return slices.SortedFunc(maps.Values(m), order)
}

// evidence is the input of the judges.
type evidence struct{ gather.Evidence }
