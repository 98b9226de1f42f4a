package clrsnap_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestErrors: errors.Is finds the kind of error, and errors.As gives the remedy.
func TestErrors(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	zombie := startCommand(t, nil, "true")
	waitForState(t, zombie.Process.Pid, "Z")
	for _, c := range []struct {
		pid    int
		want   error
		remedy bool
	}{
		{ended.Process.Pid, clrsnap.ErrNoProcess, false},
		{zombie.Process.Pid, clrsnap.ErrExited, true},
		{otherThread(t), clrsnap.ErrNotProcess, true},
	} {
		_, err := clrsnap.Open(t.Context(), c.pid, clrsnap.Options{})
		var attach *clrsnap.AttachError
		if !errors.Is(err, c.want) || !errors.As(err, &attach) || attach.PID != c.pid ||
			c.remedy && attach.Remedy == "" {
			t.Errorf("process %d: %v, want %v; %+v", c.pid, err, c.want, attach)
		}
	}
	if _, err := clrsnap.Open(t.Context(), os.Getpid(), clrsnap.Options{}); !errors.Is(err, clrsnap.ErrNotDotNet) {
		t.Errorf("this process: %v", err)
	}
}

// otherThread is the id of a thread of this process other than the main thread.
func otherThread(t *testing.T) int {
	t.Helper()
	p, err := clrsnap.Open(t.Context(), os.Getpid(), clrsnap.Options{NativeOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	threads, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range threads {
		if th.OSThreadID != os.Getpid() {
			return th.OSThreadID
		}
	}
	t.Fatal("there is one thread only")
	return 0
}

// TestFrames: the sequence has the arguments of the callback. If the walk fails, its error comes last.
func TestFrames(t *testing.T) {
	p := livetest.Open(t, testenv.Start(t, "scenarios", testenv.Options{}), clrsnap.Options{})
	s, err := p.Suspend(livetest.ThreadNamed(t, p, "watchdog").ID)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	want, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil)
	if err != nil || len(want) < 2 {
		t.Fatalf("%d frames, %v", len(want), err)
	}
	n := 0
	for f, err := range s.Frames(clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if n >= len(want) || f.ID != want[n].ID || f.IP != want[n].IP || f.Context == nil || f.Context.IP != f.IP {
			t.Errorf("frame %d is %+v", n, f)
		}
		if _, err := p.Suspend(s.Thread().ID); !errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) {
			t.Errorf("a thread captured in the loop: %v", err)
		}
		n++
	}
	if n != len(want) {
		t.Errorf("%d frames, want %d", n, len(want))
	}
	n = 0
	for _, err := range s.Frames(clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil) {
		if n++; err != nil {
			t.Error(err)
		}
		break
	}
	var last error
	for f, err := range p.Frames(42, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil) {
		if last = err; f != (clrsnap.Frame{}) {
			t.Errorf("thread 42 has %+v", f)
		}
	}
	if n != 1 || !errors.Is(last, clrsnap.CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD) {
		t.Errorf("%d frames; of thread 42: %v", n, last)
	}
}

// TestContextEnds: a long call ends when its context ends, and returns the results until then.
func TestContextEnds(t *testing.T) {
	a := testenv.Start(t, "idle", testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	over, cancel := context.WithCancel(t.Context())
	asked := 0
	snap, err := p.SnapshotAll(over, func(*clrsnap.Thread) bool {
		if asked++; asked == 3 {
			cancel()
		}
		return true
	})
	if !errors.Is(err, context.Canceled) || snap == nil || len(snap.Threads) != 3 {
		t.Errorf("%v, %+v", err, snap)
	}
	if _, err := p.SnapshotAtOnce(over, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("at once: %v", err)
	}
	if _, err := clrsnap.Open(over, a.PID, clrsnap.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v", err)
	}
	if found, err := clrsnap.Discover(over); !errors.Is(err, context.Canceled) || len(found) > 0 {
		t.Errorf("discover: %v, %v", err, found)
	}
	if checks := clrsnap.Diagnose(over, a.PID); len(checks) == 0 || checks[len(checks)-1].Outcome != snapshot.Blocking {
		t.Errorf("diagnose: %+v", checks)
	}
}

// TestContext: a set register is known, and no other register.
func TestContext(t *testing.T) {
	var c clrsnap.Context
	c.Machine = clrsnap.AMD64
	c.Set(3, 42)
	for r := range uint8(16) {
		if v, known := c.Reg(r); known != (r == 3) || known && v != 42 {
			t.Errorf("register %d: %d, %v", r, v, known)
		}
	}
}
