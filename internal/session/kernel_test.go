package session_test

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestStopped: a signal has stopped a program. Each thread says so, besides its wait.
func TestStopped(t *testing.T) {
	a := startWaits(t, testenv.DefaultRuntime, testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	if err := unix.Kill(a.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(a.PID, unix.SIGCONT) }()
	const stopped = "stopped by a signal"
	var snap *snapshot.Snapshot
	testenv.UntilSeen(t, func() string {
		var err error
		if snap, err = p.SnapshotAll(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		for i := range snap.Threads {
			if snap.Threads[i].Kernel != stopped {
				return snap.Threads[i].Name + " is " + stopped
			}
		}
		return ""
	})
	waits := 0
	for i := range snap.Threads {
		th := &snap.Threads[i]
		if th.State != stopped {
			t.Errorf("%q: %q, %q", th.Name, th.Kernel, th.State)
		}
		if th.Wait != nil && th.Wait.Kind == snapshot.HandleOne && th.Wait.Certain {
			waits++
		}
	}
	if waits < 5 {
		t.Errorf("only %d waits for handles", waits)
	}
}
