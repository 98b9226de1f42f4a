package clrsnap_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// TestDeepStack walks a stack that is larger than the first copy.
func TestDeepStack(t *testing.T) { testenv.EachRuntime(t, testDeepStack) }

func testDeepStack(t *testing.T, runtime string) {
	const depth = 8000
	a := testenv.Start(t, "spin", testenv.Options{
		Runtime: runtime, Args: []string{"--threads", "1", "--depth", strconv.Itoa(depth)},
	})
	p := livetest.Open(t, a, clrsnap.Options{})
	id := livetest.ThreadNamed(t, p, "spin-0").ID
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
	livetest.EndsWell(t, a)
}

// TestDeepStackPreemptive does the same with a thread in preemptive mode, in both modes of
// the walk.
func TestDeepStackPreemptive(t *testing.T) { testenv.EachRuntime(t, testDeepStackPreemptive) }

func testDeepStackPreemptive(t *testing.T, runtime string) {
	const depth = 12_000
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--only", "deep-stack"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	s := livetest.Suspend(t, p, livetest.ThreadID(t, p, a.Stacks["deep-stack"].TID))
	for _, mode := range []clrsnap.Mode{clrsnap.AsDocumented, clrsnap.AsCoreCLR} {
		livetest.SetMode(p, mode)
		all, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil || len(all) < depth {
			t.Errorf("mode %d: %v after %d callbacks", mode, err, len(all))
		}
	}
	livetest.EndsWell(t, a)
}

// TestSuspensionHoldsOneMoment: a suspension holds one moment, and says so when the moment is gone. A callback cannot
// replace the moment of its own walk.
func TestSuspensionHoldsOneMoment(t *testing.T) { testenv.EachRuntime(t, testSuspensionHoldsOneMoment) }

func testSuspensionHoldsOneMoment(t *testing.T, runtime string) {
	a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "2", "--depth", "20"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	first, second := livetest.ThreadNamed(t, p, "spin-0").ID, livetest.ThreadNamed(t, p, "spin-1").ID
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
		_, err := p.SnapshotAtOnce(context.Background(), nil)
		if !errors.Is(err, clrsnap.CORPROF_E_STACKSNAPSHOT_UNSAFE) {
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
	if err := s.DoStackSnapshot(ignore, 0, nil, seed); !errors.Is(err, noThread) {
		t.Errorf("DoStackSnapshot of a moment that is gone: %v", err)
	}
	if _, err := s.Seed(); !errors.Is(err, noThread) {
		t.Errorf("Seed of a moment that is gone: %v", err)
	}
	ctx := s.Context()
	_, err = s.UnmanagedWalk(&ctx, func(clrsnap.NativeFrame) error { return nil })
	if !errors.Is(err, noThread) {
		t.Errorf("UnmanagedWalk of a moment that is gone: %v", err)
	}
	livetest.EndsWell(t, a)
}

// TestNonCanonicalIP: an address with higher bits set is another address.
func TestNonCanonicalIP(t *testing.T) { testenv.EachRuntime(t, testNonCanonicalIP) }

func testNonCanonicalIP(t *testing.T, runtime string) {
	a := testenv.Start(t, "spin", testenv.Options{Runtime: runtime, Args: []string{"--threads", "1", "--depth", "3"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	seed, err := p.Seed(livetest.ThreadNamed(t, p, "spin-0").ID)
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
	livetest.EndsWell(t, a)
}
