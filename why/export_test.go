package why

import (
	"testing"
	"time"
)

// SetLeastAge sets how long a program has run of which collections, timers and native memory count, until the end of a
// test.
func SetLeastAge(t *testing.T, d time.Duration) {
	old, oldNative := leastAge, leastNativeAge
	leastAge, leastNativeAge = d, d
	t.Cleanup(func() { leastAge, leastNativeAge = old, oldNative })
}
