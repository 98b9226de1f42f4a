package testenv

import (
	"runtime"
	"testing"
)

// Allocates fails the test if read allocates more than perByte bytes for each byte of its input, and besides bytes on
// top. A reader of untrusted input must bound its memory by the size of the input: otherwise a small file could exhaust
// all memory.
//
// Allocations of other goroutines count, too, so no other goroutine should run meanwhile.
func Allocates(tb testing.TB, input, perByte, besides int, read func()) {
	tb.Helper()
	before := allocated()
	read()
	if got, most := allocated()-before, uint64(input*perByte+besides); got > most {
		tb.Errorf("%d bytes of input had %d allocated, more than %d for each and %d besides", input, got,
			perByte, besides)
	}
}

// allocated is how many bytes this process has allocated so far. runtime/metrics is not exact enough: the metric lags
// behind by the unused rest of the spans in use.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
