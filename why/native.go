package why

import (
	"fmt"
	"time"

	"clrsnap/profile"
)

// Thresholds of memory that is not the managed heap's. A program that starts needs more and more of it, for what is
// compiled and loaded.
const (
	nativeRate  = 1 << 20 // bytes a second
	nativeGrown = 3 << 20 // bytes, from the first to the last look
	nativeHalf  = 0.2     // of that, at the least in each half of the time
)

// leastNativeAge is how old a process is whose native memory does not grow because it starts. A test has less time.
var leastNativeAge = 15 * time.Second

// judgeNativeGrowth looks for memory that grows all the time, and is not the managed heap's.
func judgeNativeGrowth(e *evidence) []profile.Verdict {
	if len(e.heaps) < 2 || len(e.moments) < 3 || e.age < leastNativeAge {
		return nil
	}
	first, last := &e.heaps[0], &e.heaps[len(e.heaps)-1]
	took := last.at - first.at
	if first.Memory == nil || last.Memory == nil || took < enough {
		return nil
	}
	grown := last.Memory.Native - first.Memory.Native
	speed := rate(grown, took)
	if grown < nativeGrown || speed < nativeRate {
		return nil
	}
	for i := 1; i < len(e.moments); i++ {
		if float64(e.moments[i].anonymous-e.moments[i-1].anonymous) < nativeHalf*float64(grown) {
			return nil
		}
	}
	return []profile.Verdict{{
		Cause: profile.CauseNativeGrowth, Certainty: profile.Likely,
		Text: fmt.Sprintf("Memory that is not the managed heap's grows, by %s a second: memory of malloc, of native "+
			"libraries, or of the runtime itself.", bytesOf(speed)),
		Evidence: []profile.Evidence{{Text: fmt.Sprintf("%s more in %s. Now it is %s of the %s that the process has in "+
			"RAM; the managed heap has %s.", bytesOf(grown), seconds(took), bytesOf(last.Memory.Native),
			bytesOf(last.Memory.RSS), bytesOf(last.Memory.Managed))}},
		Commands: []string{
			fmt.Sprintf("clrsnap record %d --mode cpu -d 30s", e.process.PID), fmt.Sprintf("pmap -x %d", e.process.PID),
		},
	}}
}
