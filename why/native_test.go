package why

import (
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/nativemem"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// TestNativeGrowthLows: memory that is given back in between does not grow, whatever two readings
// say.
func TestNativeGrowthLows(t *testing.T) {
	const mib = 1 << 20
	taken := func(bytes func(i int) int64) *evidence {
		e := same(3)
		e.Age = time.Minute
		for i := range 40 {
			e.Anonymous = append(e.Anonymous, gather.Amount{At: time.Duration(i) * 100 * time.Millisecond,
				Bytes: bytes(i)})
		}
		for _, i := range []int{4, 39} {
			m := snapshot.Memory{RSS: bytes(i), Native: bytes(i)}
			e.Heaps = append(e.Heaps, gather.HeapLook{At: time.Duration(i) * 100 * time.Millisecond,
				Heap: &snapshot.Heap{Memory: &m}})
		}
		return e
	}
	grows := taken(func(i int) int64 { return int64(i) * mib / 2 })
	verdict(t, of(nativemem.Growth)(grows), profile.CauseNativeGrowth, profile.Likely, "5.00 MiB a second",
		"17.5 MiB more")
	none(t, of(nativemem.Growth)(taken(func(i int) int64 { return int64(i%20) * mib }))) // given back
	none(t, of(nativemem.Growth)(taken(func(i int) int64 {                               // once, not all the time
		if i < 20 {
			return 0
		}
		return 20 * mib
	})))
	last := grows.Last().Snap
	last.Threads = make([]snapshot.Thread, 80)
	none(t, of(nativemem.Growth)(grows)) // each of 80 more threads has a part of it
	last.Threads = nil
	grows.Anonymous = grows.Anonymous[:9]
	none(t, of(nativemem.Growth)(grows)) // too few moments
}
