package details

import (
	"context"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestSlept: a thread does not sleep if its sleep is over and the runtime holds the thread back, because a suspension
// is pending. A thread whose sleep is not over sleeps.
func TestSlept(t *testing.T) { testenv.EachRuntime(t, testSlept) }

func testSlept(t *testing.T, runtime string) {
	p := livetest.Open(t, testenv.Start(t, "ailing", testenv.Options{
		Runtime: runtime, Args: []string{"--of", "holdout"},
	}), clrsnap.Options{})
	suspended, sleeps := false, false
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		snap, err := p.SnapshotAll(context.Background(), func(th *clrsnap.Thread) bool {
			return th.Name == "slept" || th.Name == "sleeps"
		})
		if err != nil || len(snap.Threads) != 2 {
			t.Fatalf("%v, %d threads", err, len(snap.Threads))
		}
		for i := range snap.Threads {
			th := &snap.Threads[i]
			w := th.Wait
			switch {
			case w == nil:
			case th.Name == "sleeps":
				sleeps = w.Kind == profile.ThreadSleep && w.Timeout == profile.Forever
			case w.Kind == profile.ThreadSleep && w.Timeout == profile.Forever:
				t.Errorf("it never sleeps longer than 50 ms, and is said to sleep for ever\n%s", livetest.Text(th.Frames))
			case w.Kind == profile.WaitRuntime:
				suspended = true
			}
		}
		if suspended && sleeps || t.Failed() {
			return
		}
		if time.Since(begin) > testenv.Hang {
			t.Fatalf("suspended: %v, sleeps: %v", suspended, sleeps)
		}
	}
}
