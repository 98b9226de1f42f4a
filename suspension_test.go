package clrsnap_test

import (
	"context"
	"errors"
	"testing"

	"clrsnap"
	"clrsnap/internal/testenv"
)

// nothing is a callback.
func nothing(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error { return nil }

// TestDeepStack walks a stack that is larger than what is copied at first.
func TestDeepStack(t *testing.T) { eachRuntime(t, testDeepStack) }

func testDeepStack(t *testing.T, runtime string) {
	const depth = 8000
	a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "1", "--depth", "8000"}})
	p := open(t, a, clrsnap.Options{})
	id := threadNamed(t, p, "spin-0").ID
	st, err := p.Snapshot(id)
	if err != nil || !st.Complete || len(st.Frames) < depth {
		t.Errorf("Snapshot: %v, complete %v, %d frames: %s", err, st.Complete, len(st.Frames), st.Error)
	}
	s, err := p.Suspend(id)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := s.Seed()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = s.DoStackSnapshot(func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
		n++
		return nil
	}, 0, nil, seed)
	if err != nil || n < depth {
		t.Errorf("DoStackSnapshot: %v after %d callbacks", err, n)
	}
	endsWell(t, a)
}

// TestDeepStackPreemptive: the same of a thread in preemptive mode, in both modes of the
// walk.
func TestDeepStackPreemptive(t *testing.T) { eachRuntime(t, testDeepStackPreemptive) }

func testDeepStackPreemptive(t *testing.T, runtime string) {
	const depth = 12_000
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--only", "deep-stack"}})
	p := open(t, a, clrsnap.Options{})
	s := suspend(t, p, threadID(t, p, a.Stacks["deep-stack"].TID))
	for _, mode := range []clrsnap.Mode{clrsnap.AsDocumented, clrsnap.AsCoreCLR} {
		p.SetMode(mode)
		all, err := calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil || len(all) < depth {
			t.Errorf("mode %d: %v after %d callbacks", mode, err, len(all))
		}
	}
	endsWell(t, a)
}

// TestSuspensionHoldsOneMoment: a suspension says so when what it held is gone,
// and a callback cannot take it away from under its own walk.
func TestSuspensionHoldsOneMoment(t *testing.T) { eachRuntime(t, testSuspensionHoldsOneMoment) }

func testSuspensionHoldsOneMoment(t *testing.T, runtime string) {
	a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "2", "--depth", "20"}})
	p := open(t, a, clrsnap.Options{})
	first, second := threadNamed(t, p, "spin-0").ID, threadNamed(t, p, "spin-1").ID
	s, err := p.Suspend(first)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := s.Seed()
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	err = s.DoStackSnapshot(func(clrsnap.FunctionID, uint64, *clrsnap.FrameInfo, *clrsnap.Context, any) error {
		calls++
		for _, id := range []clrsnap.ThreadID{first, second} {
			if _, err := p.Suspend(id); !errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) {
				t.Errorf("Suspend in a callback: %v", err)
			}
			if st, err := p.Snapshot(id); err == nil && st.Complete {
				t.Error("Snapshot in a callback took a snapshot")
			}
		}
		if _, err := p.SnapshotAtOnce(context.Background(), nil); !errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) {
			t.Errorf("SnapshotAtOnce in a callback: %v", err)
		}
		return nil
	}, 0, nil, seed)
	if err != nil || calls < 20 {
		t.Errorf("the walk around these calls: %v after %d callbacks", err, calls)
	}
	if _, err := p.Suspend(second); err != nil {
		t.Fatal(err)
	}
	const over = clrsnap.CORPROF_E_STACKSNAPSHOT_INVALID_TGT_THREAD
	if err := s.DoStackSnapshot(nothing, 0, nil, seed); !errors.Is(err, over) {
		t.Errorf("DoStackSnapshot of a moment that is gone: %v", err)
	}
	if _, err := s.Seed(); !errors.Is(err, over) {
		t.Errorf("Seed of a moment that is gone: %v", err)
	}
	ctx := s.Context()
	if _, err := s.UnmanagedWalk(&ctx, func(clrsnap.NativeFrame) error { return nil }); !errors.Is(err, over) {
		t.Errorf("UnmanagedWalk of a moment that is gone: %v", err)
	}
	endsWell(t, a)
}

// TestNonCanonicalIP: bits beyond those of an address make it another address.
func TestNonCanonicalIP(t *testing.T) { eachRuntime(t, testNonCanonicalIP) }

func testNonCanonicalIP(t *testing.T, runtime string) {
	a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "1", "--depth", "3"}})
	p := open(t, a, clrsnap.Options{})
	seed, err := p.Seed(threadNamed(t, p, "spin-0").ID)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := p.GetFunctionFromIP(uint64(seed.IP)); err != nil || id == 0 {
		t.Fatalf("the seed's own ip: %v, %v", id, err)
	}
	for bit := 57; bit < 64; bit++ {
		if id, err := p.GetFunctionFromIP(uint64(seed.IP) | 1<<bit); err == nil && id != 0 {
			t.Errorf("with bit %d: %v", bit, id)
		}
	}
	endsWell(t, a)
}
