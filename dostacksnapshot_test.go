package clrsnap_test

import (
	"errors"
	"slices"
	"testing"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestDoStackSnapshotFrames compares the callbacks for every blocked thread with Snapshot's walk: one callback for each
// managed frame that is not passed over, and one for each run of unmanaged frames below the first managed frame.
func TestDoStackSnapshotFrames(t *testing.T) { testenv.EachRuntime(t, testDoStackSnapshotFrames) }

func testDoStackSnapshotFrames(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--finalizer"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	for name, st := range a.Stacks {
		s := livetest.Suspend(t, p, livetest.ThreadID(t, p, st.TID))
		th := livetest.Walk(s)
		if !th.Complete {
			t.Errorf("%s: %s", name, th.Error)
			continue
		}
		got, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		bare, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkCalls(t, name, got, bare, wantCalls(th.Frames), th.Frames)
		checkContexts(t, name, got)
		checkRuns(t, name, s, got, th.Frames)
		checkFunctions(t, p, th.Frames)
		s.Release()
	}
	livetest.EndsWell(t, a)
}

// passedOver reports whether DoStackSnapshot does not report a managed frame.
func passedOver(f *snapshot.Frame) bool {
	return f.Kind == snapshot.Managed && len(livetest.Reported([]snapshot.Frame{*f})) == 0
}

// wantCalls are the callbacks that DoStackSnapshot must make for a walk.
func wantCalls(frames []snapshot.Frame) []livetest.Call {
	var want []livetest.Call
	inRun := true // the run above the first managed frame is not reported
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Kind == snapshot.Managed:
			inRun = false
			if !passedOver(f) {
				want = append(want, livetest.Call{ID: clrsnap.FunctionID(f.FunctionID), IP: f.IP})
			}
		case !inRun && f.Tier != "stub":
			inRun = true
			want = append(want, livetest.Call{IP: f.IP})
		}
	}
	return want
}

func checkCalls(t *testing.T, name string, got, bare, want []livetest.Call, frames []snapshot.Frame) {
	t.Helper()
	same := func(a, b livetest.Call) bool { return a.ID == b.ID && a.IP == b.IP }
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: got %d callbacks, want %d:\n%+v\nof\n%s", name, len(got), len(want), got, livetest.Text(frames))
	}
	if !slices.EqualFunc(bare, want, func(a, b livetest.Call) bool { return same(a, b) && a.Context == nil }) {
		t.Errorf("%s: other callbacks without register contexts, or contexts in spite of it", name)
	}
	if n := len(want); n == 0 || want[n-1].ID != 0 {
		t.Errorf("%s: the last callback is not the run of unmanaged frames at the thread's base", name)
	}
}

// checkContexts requires that each context belongs to its own frame, and that only the registers that a call preserves
// are valid.
func checkContexts(t *testing.T, name string, got []livetest.Call) {
	t.Helper()
	var last uint64
	for _, c := range got {
		if c.Context == nil {
			t.Fatalf("%s: no context at %#x", name, c.IP)
		}
		sp, ok := c.Context.Reg(arch.RSP)
		volatile := c.Context.Valid &^ uint32(arch.AMD64.NonVolatile)
		own := uint64(c.Context.IP) == c.IP && c.Context.Machine == clrsnap.AMD64
		if !own || volatile != 0 || !ok || sp <= last {
			t.Errorf("%s: context at %#x: %+v, the callee's stack pointer was %#x", name, c.IP, c.Context, last)
		}
		last = sp
	}
}

// checkRuns walks each run of unmanaged frames from the context of its callback.
func checkRuns(t *testing.T, name string, s *clrsnap.Suspension, got []livetest.Call, frames []snapshot.Frame) {
	t.Helper()
	for i, c := range got {
		if c.ID != 0 {
			continue
		}
		at := slices.IndexFunc(frames, func(f snapshot.Frame) bool {
			return f.IP == c.IP && f.SP == c.Context.Regs[arch.RSP]
		})
		var seen []uint64
		next, err := s.UnmanagedWalk(c.Context, func(f clrsnap.NativeFrame) error {
			seen = append(seen, f.IP)
			return nil
		})
		if err != nil || at < 0 {
			t.Errorf("%s: run at %#x, frame %d: %v", name, c.IP, at, err)
			continue
		}
		var want []uint64
		rest := frames[at:]
		for len(rest) > 0 && rest[0].Kind == snapshot.Native {
			want = append(want, rest[0].IP)
			rest = rest[1:]
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%s: run at %#x: got %#x, want %#x", name, c.IP, seen, want)
		}
		checkNext(t, name, next, rest, got[i+1:])
	}
}

// checkNext requires that the frame below a run is the walk's next managed frame. If that frame is reported, its
// callback has the same registers.
func checkNext(t *testing.T, name string, next *clrsnap.Context, rest []snapshot.Frame, following []livetest.Call) {
	t.Helper()
	if next == nil || len(rest) == 0 {
		if next != nil || len(rest) != 0 {
			t.Errorf("%s: run handed back %+v with %d frames below it", name, next, len(rest))
		}
		return
	}
	if uint64(next.IP) != rest[0].IP || next.Regs[arch.RSP] != rest[0].SP {
		t.Errorf("%s: run handed back %v, the next managed frame is at %#x", name, next.IP, rest[0].IP)
	}
	if passedOver(&rest[0]) || len(following) == 0 {
		return
	}
	c := *next
	c.Valid &= uint32(arch.AMD64.NonVolatile)
	want := following[0].Context
	for r := range uint8(16) {
		a, okA := c.Reg(r)
		b, okB := want.Reg(r)
		if a != b || okA != okB {
			t.Errorf("%s: below the run %s is %#x (%v), in the next callback %#x (%v)",
				name, arch.AMD64.RegNames[r], a, okA, b, okB)
		}
	}
}

func checkFunctions(t *testing.T, p *clrsnap.Process, frames []snapshot.Frame) {
	t.Helper()
	for _, f := range frames {
		got, err := p.GetFunctionFromIP(f.IP)
		if err != nil || got != clrsnap.FunctionID(f.FunctionID) {
			t.Errorf("GetFunctionFromIP(%#x) = %v, %v; want %#x (%s)", f.IP, got, err, f.FunctionID, f.Method)
		}
	}
	for _, ip := range []uint64{0, 1, 0x1000, 1 << 47, 1<<47 - 1, 1 << 62, ^uint64(0)} {
		if got, err := p.GetFunctionFromIP(ip); got != 0 || err != nil {
			t.Errorf("GetFunctionFromIP(%#x) = %v, %v", ip, got, err)
		}
	}
}

// droppedRuns counts the runs that CoreCLR leaves out next to its managed exception code: the run that called the
// exception code, and the run through which the exception code called the filter. TestOracle sees CoreCLR do so. .NET 8
// has no managed exception code.
func droppedRuns(runtime, scenario string) int {
	if scenario == "eh-filter" && testenv.Framework(runtime) != "net8" {
		return 2
	}
	return 0
}

// TestAsCoreCLR checks the documented differences, and that there are no others: some runs of unmanaged frames are left
// out, and a method that called native code may have another ip.
func TestAsCoreCLR(t *testing.T) { testenv.EachRuntime(t, testAsCoreCLR) }

func testAsCoreCLR(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime})
	p := livetest.Open(t, a, clrsnap.Options{})
	for name, st := range a.Stacks {
		s := livetest.Suspend(t, p, livetest.ThreadID(t, p, st.TID))
		documented, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		livetest.SetMode(p, clrsnap.AsCoreCLR)
		real, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		livetest.SetMode(p, clrsnap.AsDocumented)
		if err != nil {
			t.Errorf("%s as CoreCLR: %v", name, err)
		}
		compareModes(t, p, name, documented, real, droppedRuns(runtime, name))
		s.Release()
	}
	livetest.EndsWell(t, a)
}

func compareModes(t *testing.T, p *clrsnap.Process, name string, documented, real []livetest.Call, dropped int) {
	t.Helper()
	managed := func(all []livetest.Call) (out []livetest.Call, runs int) {
		for _, c := range all {
			if c.ID == 0 {
				runs++
			} else {
				out = append(out, c)
			}
		}
		return out, runs
	}
	d, dRuns := managed(documented)
	r, rRuns := managed(real)
	if !slices.EqualFunc(d, r, func(a, b livetest.Call) bool { return a.ID == b.ID }) {
		t.Errorf("%s: other methods as CoreCLR:\n%+v\n%+v", name, d, r)
		return
	}
	for i := range d {
		if fn, err := p.GetFunctionFromIP(r[i].IP); err != nil || fn != d[i].ID {
			t.Errorf("%s: as CoreCLR %v has an ip of %v, %v", name, d[i].ID, fn, err)
		}
	}
	if want := dRuns - dropped; rRuns != want {
		t.Errorf("%s: %d runs as documented, %d as CoreCLR, want %d", name, dRuns, rRuns, want)
	}
}

// TestSignalStack walks a thread whose newest Frames are on a signal's stack, and the other Frames on the thread's own
// stack. There is nothing to compare the walk with: CoreCLR's walk ends with E_FAIL at the other stack.
func TestSignalStack(t *testing.T) { testenv.EachRuntime(t, testSignalStack) }

func testSignalStack(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--only", "signal-stack"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	s := livetest.Suspend(t, p, livetest.ThreadID(t, p, a.Stacks["signal-stack"].TID))
	if th := livetest.Walk(s); !th.Complete {
		t.Fatalf("%s\n%s", th.Error, livetest.Text(th.Frames))
	}
	wanted := []string{"Scenarios.Here.Block", "Scenarios.Native.Handle", "", "Scenarios.Native.OnSignalStack"}
	for _, mode := range []clrsnap.Mode{clrsnap.AsDocumented, clrsnap.AsCoreCLR} {
		livetest.SetMode(p, mode)
		all, err := livetest.Calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil {
			t.Errorf("mode %d: %v", mode, err)
		}
		var got []string
		for _, c := range all {
			var name string // of a run
			if c.ID != 0 {
				n, err := p.FunctionName(c.ID)
				if err != nil {
					t.Fatal(err)
				}
				name = n.Exact
			}
			got = append(got, name)
		}
		at := slices.Index(got, wanted[0])
		if at < 0 || len(got) < at+len(wanted) || !slices.Equal(got[at:at+len(wanted)], wanted) {
			t.Errorf("mode %d: %q, want %q in it", mode, got, wanted)
		}
	}
	livetest.EndsWell(t, a)
}

// TestCallbackArguments: the arguments of a callback besides the frame.
func TestCallbackArguments(t *testing.T) { testenv.EachRuntime(t, testCallbackArguments) }

func testCallbackArguments(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--only", "lambda"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	id := livetest.ThreadID(t, p, a.Stacks["lambda"].TID)
	data := &struct{ n int }{}
	var kept []*clrsnap.FrameInfo
	callback := func(
		fn clrsnap.FunctionID, _ uint64, info *clrsnap.FrameInfo, _ *clrsnap.Context, clientData any,
	) error {
		if clientData != any(data) {
			t.Errorf("clientData is %v", clientData)
		}
		if fn != 0 {
			tier, err := info.Tier()
			start, err2 := info.CodeStart()
			if got, _ := p.GetFunctionFromIP(start); err != nil || err2 != nil || tier == "" || got != fn {
				t.Errorf("in the callback: tier %q, %v; code start %#x of %v, %v", tier, err, start, got, err2)
			}
		}
		kept = append(kept, info)
		return nil
	}
	err := p.DoStackSnapshot(id, callback, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, data, nil)
	if err != nil || len(kept) < 5 {
		t.Errorf("%d callbacks, %v", len(kept), err)
	}
	for _, info := range append(kept, nil, new(clrsnap.FrameInfo)) {
		_, err := info.Tier()
		_, err2 := info.CodeStart()
		if !errors.Is(err, clrsnap.ErrStale) || !errors.Is(err2, clrsnap.ErrStale) {
			t.Errorf("after the callback: %v, %v", err, err2)
		}
	}
	livetest.EndsWell(t, a)
}
