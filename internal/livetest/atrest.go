package livetest

import (
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// How many looks at a program whose threads stand still have to be exact.
const exactLooks = 5

// AtRest looks with all threads stopped until some looks were exact: on a busy machine a thread may get no CPU in which
// to stop.
func AtRest(t *testing.T, look func() *snapshot.HeapStop) {
	t.Helper()
	looks, exact := 0, 0
	testenv.UntilSeen(t, func() string {
		looks++
		stop := look()
		switch {
		case stop == nil:
			t.Fatal("the result does not say how long the threads stood still")
		case !stop.Exact:
			if stop.Reason == "" {
				t.Fatal("no reason why the look is not exact")
			}
			return "an exact look: " + stop.Reason
		case stop.Stops == 0 || stop.Threads < 2 || stop.Pause <= 0:
			t.Errorf("%+v", stop)
		}
		if exact++; exact < exactLooks {
			return "more exact looks"
		}
		return ""
	})
	t.Logf("%d of %d looks are exact", exact, looks)
}
