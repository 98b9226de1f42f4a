package why

import (
	"testing"
	"time"

	"clrsnap/internal/gather"
	"clrsnap/internal/nativemem"
	"clrsnap/internal/remote"
)

// SetLeastAge sets, until the end of a test, the age from which on a program's collections, timers and native memory
// count.
func SetLeastAge(t *testing.T, d time.Duration) {
	old, oldYoung, oldNative := gather.LeastAge, gather.YoungAge, nativemem.LeastAge
	gather.LeastAge, gather.YoungAge, nativemem.LeastAge = d, d, d
	t.Cleanup(func() { gather.LeastAge, gather.YoungAge, nativemem.LeastAge = old, oldYoung, oldNative })
}

// The judges of package remote, for the tests' evidence.
var (
	judgeRemote    = of(remote.Silent)
	judgeCallQueue = of(remote.Queue)
	judgeNames     = of(remote.NameServers)
)
