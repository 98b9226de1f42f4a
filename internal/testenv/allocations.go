package testenv

import (
	"runtime"
	"testing"
)

// Allocates fails the test if read allocates more than so many bytes for each byte of its
// input, of which there are so many, and a constant besides. A reader of what strangers have
// written whose memory is not bounded by what it is given is a way to take all there is.
//
// What else allocates meanwhile counts, too: there should be no other goroutine that does.
func Allocates(tb testing.TB, input, perByte, besides int, read func()) {
	tb.Helper()
	before := allocated()
	read()
	if got, most := allocated()-before, uint64(input*perByte+besides); got > most {
		tb.Errorf("%d bytes of input had %d allocated, more than %d for each and %d besides", input, got, perByte, besides)
	}
}

// allocated is how many bytes this process has allocated so far. The figures of
// runtime/metrics lag behind by what is left of the spans in use.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
