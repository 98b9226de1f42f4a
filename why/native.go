package why

import (
	"fmt"
	"time"

	"clrsnap/profile"
)

// Thresholds of memory outside the managed heap. A starting program needs more and more memory, for compiled code
// and loaded files.
const (
	nativeRate  = 1 << 20 // bytes a second
	nativeGrown = 3 << 20 // bytes, from the first to the last look
	nativePart  = 0.2     // of nativeGrown, from the low of a third of the time to the low of the next third
)

// leastNativeAge is the age of a process from which on a start no longer explains native growth. A test has less
// time.
var leastNativeAge = 15 * time.Second

// judgeNativeGrowth looks for memory outside the managed heap that grows all the time.
func judgeNativeGrowth(e *evidence) []profile.Verdict {
	if len(e.heaps) < 2 || e.age < leastNativeAge {
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
	if low, ok := lows(e.anonymous); !ok || float64(min(low[1]-low[0], low[2]-low[1])) < nativePart*float64(grown) {
		return nil // the memory is given back in between
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

// amount is how much anonymous memory the process had in RAM at a moment.
type amount struct {
	at    time.Duration
	bytes int64
}

// leastAmounts is the least number of readings of the memory in each third of the time.
const leastAmounts = 5

// lows are the lowest amounts of the thirds of the time. Memory that is taken and given back has a constant low.
func lows(list []amount) (low [3]int64, ok bool) {
	if len(list) == 0 {
		return low, false
	}
	var n [3]int
	first, took := list[0].at, list[len(list)-1].at-list[0].at
	for _, a := range list {
		i := min(int(3*(a.at-first)/max(took, 1)), 2)
		if n[i]++; n[i] == 1 || a.bytes < low[i] {
			low[i] = a.bytes
		}
	}
	return low, min(n[0], n[1], n[2]) >= leastAmounts
}

// amountGap is the time between two readings of the memory.
const amountGap = 50 * time.Millisecond

// watchMemory reads the amount of anonymous memory again and again, until end is called.
func (g *gatherer) watchMemory() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	var list []amount
	go func() {
		defer close(done)
		tick := time.NewTicker(max(amountGap, g.o.For/1000))
		defer tick.Stop()
		for {
			if s, err := g.dir.Status(); err == nil {
				list = append(list, amount{time.Since(g.start), s.Anonymous})
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		g.e.anonymous = list
	}
}
