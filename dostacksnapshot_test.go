package clrsnap_test

import (
	"errors"
	"slices"
	"testing"

	"clrsnap"
	"clrsnap/internal/arch"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// call is one callback of a walk.
type call struct {
	id  clrsnap.FunctionID
	ip  uint64
	ctx *clrsnap.Context
}

// calls walks the moment of a suspension and collects the callbacks.
func calls(s *clrsnap.Suspension, flags clrsnap.SnapshotInfo, seed *clrsnap.Context) ([]call, error) {
	var all []call
	err := s.DoStackSnapshot(func(id clrsnap.FunctionID, ip uint64, _ *clrsnap.FrameInfo, c *clrsnap.Context, _ any) error {
		all = append(all, call{id, ip, c})
		return nil
	}, flags, nil, seed)
	return all, err
}

func suspend(tb testing.TB, p *clrsnap.Process, id clrsnap.ThreadID) *clrsnap.Suspension {
	tb.Helper()
	s, err := p.Suspend(id)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestDoStackSnapshotFrames compares the callbacks for every blocked thread
// with the walk that Snapshot shows: one callback for each managed frame that
// is not passed over, and one for each run of unmanaged frames below the first.
func TestDoStackSnapshotFrames(t *testing.T) { eachRuntime(t, testDoStackSnapshotFrames) }

func testDoStackSnapshotFrames(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--finalizer"}})
	p := open(t, a, clrsnap.Options{})
	for name, st := range a.Stacks {
		s := suspend(t, p, threadID(t, p, st.TID))
		th := s.Walk()
		if !th.Complete {
			t.Errorf("%s: %s", name, th.Error)
			continue
		}
		got, err := calls(s, clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		bare, err := calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkCalls(t, name, got, bare, wantCalls(th.Frames), th.Frames)
		checkContexts(t, name, got)
		checkRuns(t, name, s, got, th.Frames)
		checkFunctions(t, p, th.Frames)
		s.Release()
	}
	endsWell(t, a)
}

// passedOver reports whether DoStackSnapshot does not report a managed frame.
func passedOver(f *profile.Frame) bool {
	return f.Kind == profile.Managed && len(reported([]profile.Frame{*f})) == 0
}

// wantCalls is what DoStackSnapshot must report of a walk.
func wantCalls(frames []profile.Frame) []call {
	var want []call
	inRun := true // the run above the first managed frame is not reported
	for i := range frames {
		f := &frames[i]
		switch {
		case f.Kind == profile.Managed:
			inRun = false
			if !passedOver(f) {
				want = append(want, call{id: clrsnap.FunctionID(f.FunctionID), ip: f.IP})
			}
		case !inRun && f.Tier != "stub":
			inRun = true
			want = append(want, call{ip: f.IP})
		}
	}
	return want
}

func checkCalls(t *testing.T, name string, got, bare, want []call, frames []profile.Frame) {
	t.Helper()
	same := func(a, b call) bool { return a.id == b.id && a.ip == b.ip }
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: got %d callbacks, want %d:\n%+v\nof\n%s", name, len(got), len(want), got, text(frames))
	}
	if !slices.EqualFunc(bare, want, func(a, b call) bool { return same(a, b) && a.ctx == nil }) {
		t.Errorf("%s: other callbacks without register contexts, or contexts in spite of it", name)
	}
	if n := len(want); n == 0 || want[n-1].id != 0 {
		t.Errorf("%s: the last callback is not the run of unmanaged frames at the thread's base", name)
	}
}

// checkContexts: a context is of its own frame, and only the registers that a
// call preserves are valid.
func checkContexts(t *testing.T, name string, got []call) {
	t.Helper()
	var last uint64
	for _, c := range got {
		if c.ctx == nil {
			t.Fatalf("%s: no context at %#x", name, c.ip)
		}
		sp, ok := c.ctx.Reg(arch.RSP)
		if uint64(c.ctx.IP) != c.ip || c.ctx.Machine != clrsnap.AMD64 || c.ctx.Valid&^uint32(arch.AMD64.NonVolatile) != 0 || !ok || sp <= last {
			t.Errorf("%s: context at %#x: %+v, the callee's stack pointer was %#x", name, c.ip, c.ctx, last)
		}
		last = sp
	}
}

// checkRuns walks each run of unmanaged frames from the context of its callback.
func checkRuns(t *testing.T, name string, s *clrsnap.Suspension, got []call, frames []profile.Frame) {
	t.Helper()
	for i, c := range got {
		if c.id != 0 {
			continue
		}
		at := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.IP == c.ip && f.SP == c.ctx.Regs[arch.RSP] })
		var seen []uint64
		next, err := s.UnmanagedWalk(c.ctx, func(f clrsnap.NativeFrame) error {
			seen = append(seen, f.IP)
			return nil
		})
		if err != nil || at < 0 {
			t.Errorf("%s: run at %#x, frame %d: %v", name, c.ip, at, err)
			continue
		}
		var want []uint64
		rest := frames[at:]
		for len(rest) > 0 && rest[0].Kind == profile.Native {
			want = append(want, rest[0].IP)
			rest = rest[1:]
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%s: run at %#x: got %#x, want %#x", name, c.ip, seen, want)
		}
		checkNext(t, name, next, rest, got[i+1:])
	}
}

// checkNext: below the run comes the managed frame that the walk has there. If
// that frame is reported, its callback has the same registers.
func checkNext(t *testing.T, name string, next *clrsnap.Context, rest []profile.Frame, following []call) {
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
	want := following[0].ctx
	for r := range uint8(16) {
		a, okA := c.Reg(r)
		b, okB := want.Reg(r)
		if a != b || okA != okB {
			t.Errorf("%s: below the run %s is %#x (%v), in the next callback %#x (%v)", name, arch.AMD64.RegNames[r], a, okA, b, okB)
		}
	}
}

func checkFunctions(t *testing.T, p *clrsnap.Process, frames []profile.Frame) {
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

// droppedRuns are the runs next to the exception machinery: the one that called
// it, and the one through which it called the filter. TestOracle has CoreCLR's
// word for it. .NET 8 has no managed machinery.
func droppedRuns(runtime, scenario string) int {
	if scenario == "eh-filter" && runtime != "net8" {
		return 2
	}
	return 0
}

// TestAsCoreCLR checks the documented differences, and that there are no others:
// some runs of unmanaged frames are left out, and a method that called native
// code may have another ip.
func TestAsCoreCLR(t *testing.T) { eachRuntime(t, testAsCoreCLR) }

func testAsCoreCLR(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime})
	p := open(t, a, clrsnap.Options{})
	for name, st := range a.Stacks {
		s := suspend(t, p, threadID(t, p, st.TID))
		documented, err := calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p.SetMode(clrsnap.AsCoreCLR)
		real, err := calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		p.SetMode(clrsnap.AsDocumented)
		if err != nil {
			t.Errorf("%s as CoreCLR: %v", name, err)
		}
		compareModes(t, p, name, documented, real, droppedRuns(runtime, name))
		s.Release()
	}
	endsWell(t, a)
}

func compareModes(t *testing.T, p *clrsnap.Process, name string, documented, real []call, dropped int) {
	t.Helper()
	managed := func(all []call) (out []call, runs int) {
		for _, c := range all {
			if c.id == 0 {
				runs++
			} else {
				out = append(out, c)
			}
		}
		return out, runs
	}
	d, dRuns := managed(documented)
	r, rRuns := managed(real)
	if !slices.EqualFunc(d, r, func(a, b call) bool { return a.id == b.id }) {
		t.Errorf("%s: other methods as CoreCLR:\n%+v\n%+v", name, d, r)
		return
	}
	for i := range d {
		if fn, err := p.GetFunctionFromIP(r[i].ip); err != nil || fn != d[i].id {
			t.Errorf("%s: as CoreCLR %v has an ip of %v, %v", name, d[i].id, fn, err)
		}
	}
	if want := dRuns - dropped; rRuns != want {
		t.Errorf("%s: %d runs as documented, %d as CoreCLR, want %d", name, dRuns, rRuns, want)
	}
}

// TestSignalStack walks a thread whose newest Frames are on a signal's stack, and the
// others on the thread's own. CoreCLR's walk ends with E_FAIL where the first frame
// below lies on the other stack, so that there is nothing to compare this one with.
func TestSignalStack(t *testing.T) { eachRuntime(t, testSignalStack) }

func testSignalStack(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--only", "signal-stack"}})
	p := open(t, a, clrsnap.Options{})
	s := suspend(t, p, threadID(t, p, a.Stacks["signal-stack"].TID))
	if th := s.Walk(); !th.Complete {
		t.Fatalf("%s\n%s", th.Error, text(th.Frames))
	}
	wanted := []string{"Scenarios.Here.Block", "Scenarios.Native.Handle", "", "Scenarios.Native.OnSignalStack"}
	for _, mode := range []clrsnap.Mode{clrsnap.AsDocumented, clrsnap.AsCoreCLR} {
		p.SetMode(mode)
		all, err := calls(s, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil)
		if err != nil {
			t.Errorf("mode %d: %v", mode, err)
		}
		var got []string
		for _, c := range all {
			var name string // of a run
			if c.id != 0 {
				n, err := p.FunctionName(c.id)
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
	endsWell(t, a)
}

// TestCallbackArguments: what a callback gets besides the frame.
func TestCallbackArguments(t *testing.T) { eachRuntime(t, testCallbackArguments) }

func testCallbackArguments(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--only", "lambda"}})
	p := open(t, a, clrsnap.Options{})
	id := threadID(t, p, a.Stacks["lambda"].TID)
	data := &struct{ n int }{}
	var kept []*clrsnap.FrameInfo
	err := p.DoStackSnapshot(id, func(fn clrsnap.FunctionID, _ uint64, info *clrsnap.FrameInfo, _ *clrsnap.Context, clientData any) error {
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
	}, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, data, nil)
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
	endsWell(t, a)
}
