package why

import (
	"testing"
	"time"
)

// SetLeastAge sets how long a program has run of which collections and timers count, until the end of a test.
func SetLeastAge(t *testing.T, d time.Duration) {
	old := leastAge
	leastAge = d
	t.Cleanup(func() { leastAge = old })
}
