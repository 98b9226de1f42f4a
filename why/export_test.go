package why

import (
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/nativemem"
)

// SetLeastAge sets, until the end of a test, the age from which on a program's collections, timers and native memory
// count.
func SetLeastAge(t *testing.T, d time.Duration) {
	old, oldYoung, oldNative := gather.LeastAge, gather.YoungAge, nativemem.LeastAge
	gather.LeastAge, gather.YoungAge, nativemem.LeastAge = d, d, d
	t.Cleanup(func() { gather.LeastAge, gather.YoungAge, nativemem.LeastAge = old, oldYoung, oldNative })
}
