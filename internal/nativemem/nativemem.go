// Package nativemem judges the growth of memory that is not the managed heap's.
package nativemem

import (
	"fmt"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
)

// Thresholds of memory outside the managed heap. A starting program needs more and more memory, for compiled code
// and loaded files.
const (
	nativeRate  = 1 << 20 // bytes a second
	nativeGrown = 3 << 20 // bytes, from the first to the last look
	nativePart  = 0.2     // of nativeGrown, from the low of a third of the time to the low of the next third

	nativeThread = 256 << 10 // bytes: more than .NET, and libraries, have for a thread besides the stack
)

// LeastAge is the age of a process from which on a start no longer explains native growth. A test has less
// time.
var LeastAge = 15 * time.Second

// Growth looks for memory outside the managed heap that grows all the time.
func Growth(e *gather.Evidence) []profile.Verdict {
	if len(e.Heaps) < 2 || e.Age < LeastAge {
		return nil
	}
	first, last := &e.Heaps[0], &e.Heaps[len(e.Heaps)-1]
	took := last.At - first.At
	if first.Memory == nil || last.Memory == nil || took < gather.Enough {
		return nil
	}
	grown := last.Memory.Native - first.Memory.Native
	if len(e.Looks) > 1 { // threads that become more are a finding of their own
		grown -= nativeThread * int64(max(len(e.Last().Snap.Threads)-len(e.First().Snap.Threads), 0))
	}
	speed := phrase.Rate(grown, took)
	if grown < nativeGrown || speed < nativeRate {
		return nil
	}
	if low, ok := lows(e.Anonymous); !ok || float64(min(low[1]-low[0], low[2]-low[1])) < nativePart*float64(grown) {
		return nil // the memory is given back in between
	}
	return []profile.Verdict{{
		Cause: profile.CauseNativeGrowth, Certainty: profile.Likely,
		Text: fmt.Sprintf("Memory that is not the managed heap's grows, by %s a second: memory of malloc, of native "+
			"libraries, or of the runtime itself.", phrase.BytesOf(speed)),
		Evidence: []profile.Evidence{{Text: fmt.Sprintf("%s more in %s. Now %s of the process's "+
			"%s in RAM are native; the managed heap has %s.", phrase.BytesOf(grown), phrase.Seconds(took),
			phrase.BytesOf(last.Memory.Native),
			phrase.BytesOf(last.Memory.RSS), phrase.BytesOf(last.Memory.Managed))}},
		Commands: []string{
			fmt.Sprintf("clrsnap record %d --mode cpu -d 30s", e.Process.PID), fmt.Sprintf("pmap -x %d", e.Process.PID),
		},
	}}
}

// leastAmounts is the least number of readings of the memory in each third of the time.
const leastAmounts = 5

// lows are the lowest amounts of the thirds of the time. Memory that is taken and given back has a constant low.
func lows(list []gather.Amount) (low [3]int64, ok bool) {
	if len(list) == 0 {
		return low, false
	}
	var n [3]int
	first, took := list[0].At, list[len(list)-1].At-list[0].At
	for _, a := range list {
		i := min(int(3*(a.At-first)/max(took, 1)), 2)
		if n[i]++; n[i] == 1 || a.Bytes < low[i] {
			low[i] = a.Bytes
		}
	}
	return low, min(n[0], n[1], n[2]) >= leastAmounts
}
