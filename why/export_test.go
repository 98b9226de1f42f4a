package why

import (
	"testing"
	"time"
)

// SetLeastAge sets, until the end of a test, the age from which on a program's collections, timers and native memory
// count.
func SetLeastAge(t *testing.T, d time.Duration) {
	old, oldNative := leastAge, leastNativeAge
	leastAge, leastNativeAge = d, d
	t.Cleanup(func() { leastAge, leastNativeAge = old, oldNative })
}
