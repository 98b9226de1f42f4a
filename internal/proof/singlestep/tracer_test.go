package singlestep

import (
	"runtime"
	"testing"
	"time"

	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/walk"

	"golang.org/x/sys/unix"
)

func walkResult(complete bool) walk.Result { return walk.Result{Complete: complete} }

// A stepped process stops and goes on with job control.
func TestGroupStop(t *testing.T) {
	a := testenv.Start(t, "steps", testenv.Options{Args: []string{"--work", "hijack"}})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := threadNamed(t, a.PID, "stepped")
	tr, err := seize(tid, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		_ = unix.Kill(a.PID, unix.SIGSTOP)
		for tr.stops.Load() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		_ = unix.Kill(a.PID, unix.SIGCONT)
	}()
	after := 0 // instructions since the group stop
	for end := time.Now().Add(testenv.Hang); after < 1000 && time.Now().Before(end); {
		if ev, err := tr.step(insn{class: enter}); err != nil || ev == ended {
			t.Fatalf("event %d: %v", ev, err)
		}
		if tr.stops.Load() > 0 {
			after++
		}
	}
	if err := tr.detach(); err != nil {
		t.Error(err)
	}
	if tr.stops.Load() != 1 || after < 1000 {
		t.Errorf("%d group stops, %d instructions after", tr.stops.Load(), after)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("result %q, exit code %d", result, code)
	}
}

func threadNamed(t *testing.T, pid int, name string) int {
	t.Helper()
	p, err := live.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := Session{Threads: []string{name}}
	for range 100 {
		if tids, err := s.choose(p); err == nil && len(tids) > 0 {
			return tids[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no thread %q", name)
	return 0
}
