package why

import (
	"testing"
	"time"
)

// SetLeastAge sets, until the end of a test, the age from which on a program's collections, timers and native memory
// count.
func SetLeastAge(t *testing.T, d time.Duration) {
	old, oldYoung, oldNative := leastAge, youngAge, leastNativeAge
	leastAge, youngAge, leastNativeAge = d, d, d
	t.Cleanup(func() { leastAge, youngAge, leastNativeAge = old, oldYoung, oldNative })
}
