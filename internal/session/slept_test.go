package session_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// heldUp are the kinds of the waits of TestHeldUp.
var heldUp = map[string]snapshot.WaitKind{
	"join": snapshot.ThreadJoin, "handle": snapshot.HandleOne, "any": snapshot.HandleAny,
	"monitor":   snapshot.MonitorWait,
	"semaphore": snapshot.SemaphoreWait, "event": snapshot.EventWait, "task": snapshot.TaskWait,
}

// TestHeldUp: a thread does not wait for a thread, a handle or a lock if the wait is over and the runtime holds the
// thread back, because a suspension is pending. A thread whose wait is not over waits.
func TestHeldUp(t *testing.T) {
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		testHeldUp(t, testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "held-up"}}))
	})
}

// TestHeldUpSingleFile is TestHeldUp where the runtime and the system's part of .NET are one module.
func TestHeldUpSingleFile(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		testHeldUp(t, ailingFile(t, runtime, "held-up"))
	})
}

// ailingFile starts the program ailing as a single file.
func ailingFile(t *testing.T, runtime, of string) *testenv.App {
	t.Helper()
	p := testenv.Publish(t, "ailing", runtime, testenv.SingleFile, "")
	return p.Start(t, testenv.Options{Runtime: runtime, Args: []string{"--of", of}})
}

func testHeldUp(t *testing.T, a *testenv.App) {
	p := livetest.Open(t, a, clrsnap.Options{})
	testenv.UntilSeen(t, func() string {
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		missing := map[string]bool{}
		for name := range heldUp {
			missing["over-"+name], missing["in-"+name] = true, true
		}
		for i := range snap.Threads {
			th := &snap.Threads[i]
			over, isOver := strings.CutPrefix(th.Name, "over-")
			in, isIn := strings.CutPrefix(th.Name, "in-")
			w := th.Wait
			switch {
			case w == nil:
			case isOver && w.Kind == heldUp[over] && w.Timeout == snapshot.Forever:
				t.Errorf("%s never waits longer than 50 ms, and is said to wait for ever\n%s", th.Name,
					livetest.Text(th.Frames))
			case isOver && w.Kind == snapshot.WaitRuntime, isIn && w.Kind == heldUp[in]:
				delete(missing, th.Name)
			case isIn && w.Kind == snapshot.WaitRuntime:
				t.Errorf("the wait of %s is not over\n%s", th.Name, livetest.Text(th.Frames))
			}
		}
		if len(missing) > 0 && !t.Failed() {
			return fmt.Sprint(slices.Sorted(maps.Keys(missing)))
		}
		return ""
	})
}

// TestSlept: a thread does not sleep if its sleep is over and the runtime holds the thread back, because a suspension
// is pending. A thread whose sleep is not over sleeps.
func TestSlept(t *testing.T) {
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		testSlept(t, testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "holdout"}}))
	})
}

// TestSleptSingleFile is TestSlept where the runtime and the system's part of .NET are one module.
func TestSleptSingleFile(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		testSlept(t, ailingFile(t, runtime, "holdout"))
	})
}

func testSlept(t *testing.T, a *testenv.App) {
	p := livetest.Open(t, a, clrsnap.Options{})
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
				sleeps = w.Kind == snapshot.ThreadSleep && w.Timeout == snapshot.Forever
			case w.Kind == snapshot.ThreadSleep && w.Timeout == snapshot.Forever:
				t.Errorf("it never sleeps longer than 50 ms, and is said to sleep for ever\n%s",
					livetest.Text(th.Frames))
			case w.Kind == snapshot.WaitRuntime:
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
