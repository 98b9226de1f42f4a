package clrsnap_test

import (
	"errors"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// ignore is a callback that accepts everything.
func ignore(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error { return nil }

// noThread is the result for a thread that does not exist, or has ended.
const noThread = clrsnap.CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD

// wantResult fails the test unless err is the HRESULT want, for thread id, and
// says so in words.
func wantResult(t *testing.T, what string, err error, want clrsnap.HRESULT) {
	t.Helper()
	if want == clrsnap.S_OK {
		if err != nil {
			t.Errorf("%s: %v, want S_OK", what, err)
		}
		return
	}
	var e *clrsnap.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.HRESULT != want || e.Text == "" {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func spinning(t *testing.T, runtime string) (*testenv.App, *clrsnap.Process, clrsnap.ThreadID) {
	t.Helper()
	a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "2", "--depth", "20"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	return a, p, livetest.ThreadNamed(t, p, "spin-0").ID
}

func TestDoStackSnapshotInvalidArgument(t *testing.T) {
	testenv.EachRuntime(t, testDoStackSnapshotInvalidArgument)
}

func testDoStackSnapshotInvalidArgument(t *testing.T, runtime string) {
	a, p, id := spinning(t, runtime)
	s := livetest.Cooperative(t, p, id)
	good, err := s.Seed()
	if err != nil || good == nil {
		t.Fatal(good, err)
	}
	seed := func(change func(*clrsnap.Context)) *clrsnap.Context {
		c := *good
		change(&c)
		return &c
	}
	for _, tt := range []struct {
		what     string
		callback clrsnap.StackSnapshotCallback
		flags    clrsnap.SnapshotInfo
		seed     *clrsnap.Context
	}{
		{"no callback", nil, 0, nil},
		{"flag X86_OPTIMIZED", ignore, clrsnap.COR_PRF_SNAPSHOT_X86_OPTIMIZED, nil},
		{"flags 3", ignore, 3, nil},
		{"flag 4", ignore, 4, nil},
		{"flag 8", ignore, 8, nil},
		{"flag 1<<31", ignore, 1 << 31, nil},
		{"an empty seed", ignore, 0, new(clrsnap.Context)},
		{"a seed of no machine", ignore, 0, seed(func(c *clrsnap.Context) { c.Machine = 0 })},
		{"a seed of arm64", ignore, 0, seed(func(c *clrsnap.Context) { c.Machine = clrsnap.ARM64 })},
		{"a seed without a stack pointer", ignore, 0, seed(func(c *clrsnap.Context) { c.Valid &^= 1 << arch.RSP })},
		{"a seed with a misaligned stack pointer", ignore, 0, seed(func(c *clrsnap.Context) { c.Regs[arch.RSP]++ })},
		{"a seed without an ip", ignore, 0, seed(func(c *clrsnap.Context) { c.IP = 0 })},
	} {
		err := p.DoStackSnapshot(id, tt.callback, tt.flags, nil, tt.seed)
		wantResult(t, tt.what, err, clrsnap.E_INVALIDARG)
		err = s.DoStackSnapshot(tt.callback, tt.flags, nil, tt.seed)
		wantResult(t, tt.what+", suspended", err, clrsnap.E_INVALIDARG)
	}
	_, err = s.UnmanagedWalk(nil, func(clrsnap.NativeFrame) error { return nil })
	wantResult(t, "UnmanagedWalk without a context", err, clrsnap.E_INVALIDARG)
	_, err = s.UnmanagedWalk(good, nil)
	wantResult(t, "UnmanagedWalk without a function", err, clrsnap.E_INVALIDARG)
	_, err = p.FunctionName(0)
	wantResult(t, "the name of function 0", err, clrsnap.E_INVALIDARG)
	_, err = p.FunctionName(clrsnap.FunctionID(good.Regs[arch.RSP]))
	if !errors.Is(err, clrsnap.E_FAIL) { // the bytes there may look like a method
		wantResult(t, "the name of something on the stack", err, clrsnap.E_INVALIDARG)
	}
	livetest.EndsWell(t, a)
}

func TestDoStackSnapshotCooperative(t *testing.T) {
	testenv.EachRuntime(t, testDoStackSnapshotCooperative)
}

func testDoStackSnapshotCooperative(t *testing.T, runtime string) {
	a, p, id := spinning(t, runtime)
	s := livetest.Cooperative(t, p, id)
	seed, err := s.Seed()
	if err != nil || seed == nil {
		t.Fatal(seed, err)
	}
	full := livetest.Walk(s)
	got, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, seed)
	wantResult(t, "with the seed of Suspension.Seed", err, clrsnap.S_OK)
	checkCalls(t, "seeded", got, got, wantCalls(full.Frames), full.Frames)

	_, err = livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
	wantResult(t, "without a seed", err, clrsnap.S_FALSE)

	native := *seed
	for _, f := range full.Frames {
		if f.Kind == "native" {
			native.IP = f.IP
		}
	}
	for _, ip := range []uint64{native.IP, 1, 1 << 50} {
		native.IP = ip
		got, err = livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, &native)
		wantResult(t, "with a seed in native code", err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX)
		if len(got) != 0 {
			t.Errorf("a seed in native code: %d callbacks", len(got))
		}
	}
	off := *seed
	off.Regs[arch.RSP] += 16
	got, err = livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, &off)
	wantResult(t, "with a seed beside the stack's frames", err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE)
	if len(got) != 0 {
		t.Errorf("a seed beside the stack's frames: %d callbacks", len(got))
	}
	s.Release()
	wantResult(t, "after Release", s.DoStackSnapshot(ignore, 0, nil, seed), noThread)
	livetest.EndsWell(t, a)
}

// TestDoStackSnapshotStaleSeed uses a seed of an earlier moment. The thread has run since,
// so the seed is most probably stale; by chance the thread can be at the same instruction.
func TestDoStackSnapshotStaleSeed(t *testing.T) { testenv.EachRuntime(t, testDoStackSnapshotStaleSeed) }

func testDoStackSnapshotStaleSeed(t *testing.T, runtime string) {
	a, p, id := spinning(t, runtime)
	s := livetest.Cooperative(t, p, id)
	seed, err := s.Seed()
	if err != nil || seed == nil {
		t.Fatal(seed, err)
	}
	s.Release()
	stale := 0
	// On a busy machine the thread may not get a CPU for a while.
	for n, begun := 0, time.Now(); n < 50 || stale == 0 && time.Since(begun) < testenv.Hang; n++ {
		err := p.DoStackSnapshot(id, ignore, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil, seed)
		if err != nil {
			wantResult(t, "with a stale seed", err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE)
			stale++
		}
	}
	if stale == 0 {
		t.Error("a stale seed was accepted all the time")
	}
	livetest.EndsWell(t, a)
}

func TestDoStackSnapshotCallbackStops(t *testing.T) {
	testenv.EachRuntime(t, testDoStackSnapshotCallbackStops)
}

func testDoStackSnapshotCallbackStops(t *testing.T, runtime string) {
	a, p, _ := spinning(t, runtime)
	id := livetest.ThreadNamed(t, p, "watchdog").ID
	stop, n := errors.New("enough"), 0
	callback := func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
		n++
		return stop
	}
	err := p.DoStackSnapshot(id, callback, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil, nil)
	wantResult(t, "callback stops", err, clrsnap.CORPROF_E_STACKSNAPSHOT_ABORTED)
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%v after %d callbacks", err, n)
	}

	s := livetest.Suspend(t, p, id)
	var inner []error
	err = s.DoStackSnapshot(func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
		inner = append(inner, p.DoStackSnapshot(id, ignore, 0, nil, nil), s.DoStackSnapshot(ignore, 0, nil, nil))
		return nil
	}, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil, nil)
	wantResult(t, "walk with walks in its callbacks", err, clrsnap.S_OK)
	for _, err := range inner {
		wantResult(t, "walk inside a callback", err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE)
	}
	wantResult(t, "walk after that", p.DoStackSnapshot(id, ignore, 0, nil, nil), clrsnap.S_OK)
	livetest.EndsWell(t, a)
}

// TestDoStackSnapshotPreemptive: a thread in preemptive mode is walked from its Frames,
// and any seed is ignored.
func TestDoStackSnapshotPreemptive(t *testing.T) {
	testenv.EachRuntime(t, testDoStackSnapshotPreemptive)
}

func testDoStackSnapshotPreemptive(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{
		Runtime: runtime, Args: []string{"--only", "pinvoke-sleep,block"},
	})
	p := livetest.Open(t, a, clrsnap.Options{})
	bogus := &clrsnap.Context{IP: 0x1234, Machine: clrsnap.AMD64}
	bogus.Set(arch.RSP, 0x10000)
	for name, st := range a.Stacks {
		s := livetest.Suspend(t, p, livetest.ThreadID(t, p, st.TID))
		want, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		wantResult(t, name, err, clrsnap.S_OK)
		got, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, bogus)
		wantResult(t, name+" with a bogus seed", err, clrsnap.S_OK)
		if len(got) == 0 || len(got) != len(want) {
			t.Errorf("%s: %d callbacks with a seed, %d without", name, len(got), len(want))
		}
		s.Release()
	}
	// One of the runtime's own threads has a Thread object and runs no managed code.
	none, err := p.Threads()
	if err != nil {
		t.Fatal(err)
	}
	met := false
	for _, th := range none {
		if th.ID == 0 || th.Role != "Tiered compilation" {
			continue
		}
		met = true
		s := livetest.Suspend(t, p, th.ID)
		got, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		seed, err2 := s.Seed()
		if errors.Is(err, clrsnap.S_FALSE) && livetest.Walk(s).Mode == "cooperative" {
			err = nil // the thread compiles; without a seed nothing can be known of its stack
		}
		if err != nil || len(got) != 0 || seed != nil || err2 != nil {
			t.Errorf("%q: %v, %d callbacks; seed %v, %v", th.Name, err, len(got), seed, err2)
		}
	}
	if !met {
		t.Error("no thread without managed frames")
	}
	livetest.EndsWell(t, a)
}

func TestDoStackSnapshotInvalidThread(t *testing.T) {
	testenv.EachRuntime(t, testDoStackSnapshotInvalidThread)
}

func testDoStackSnapshotInvalidThread(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: shortLived})
	p := livetest.Open(t, a, clrsnap.Options{})
	main := livetest.ThreadID(t, p, a.PID)
	for _, id := range []clrsnap.ThreadID{0, 1, 0xdeadbeef, main + 8, ^clrsnap.ThreadID(0)} {
		wantResult(t, "thread "+id.String(), p.DoStackSnapshot(id, ignore, 0, nil, nil), noThread)
	}
	ended, met := 0, map[clrsnap.ThreadID]bool{}
	for end := time.Now().Add(testenv.Hang); ended < 10 && time.Now().Before(end); {
		threads, err := p.Threads()
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range threads {
			if th.ID != 0 && (th.Name == "mayfly" || th.Name == "pong") {
				met[th.ID] = true
			}
		}
		ended += walkEnded(t, p, met)
	}
	if ended == 0 {
		t.Error("no thread was met after its end")
	}
	livetest.EndsWell(t, a)
	wantResult(t, "after the process has ended", p.DoStackSnapshot(main, ignore, 0, nil, nil), noThread)
}

// walkEnded walks short-lived threads from earlier listings. Most of the threads have ended. But Thread objects are
// soon used again: then another thread is walked.
func walkEnded(t *testing.T, p *clrsnap.Process, met map[clrsnap.ThreadID]bool) (ended int) {
	for id := range met {
		err := p.DoStackSnapshot(id, ignore, 0, nil, nil)
		switch {
		case errors.Is(err, noThread):
			ended++
		case err != nil && !errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) && !errors.Is(err, clrsnap.S_FALSE):
			t.Errorf("walking a thread that may have ended: %v", err)
		}
	}
	return ended
}
