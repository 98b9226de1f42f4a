package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestScenarios compares the stack of every blocked scenario, frame by frame, with the stack that the program itself
// saw before the scenario blocked.
func TestScenarios(t *testing.T) { testenv.EachRuntime(t, testScenarios) }

func testScenarios(t *testing.T, runtime string) {
	a := testenv.Start(t, "scenarios", testenv.Options{Runtime: runtime, Args: []string{"--finalizer"}})
	for _, o := range []clrsnap.Options{{}, {AlwaysStop: true}} {
		t.Run(fmt.Sprintf("AlwaysStop=%v", o.AlwaysStop), func(t *testing.T) {
			snap, err := livetest.Open(t, a, o).SnapshotAll(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			checkScenarios(t, a, snap, runtime)
		})
	}
	t.Run("AtOnce", func(t *testing.T) {
		checkScenarios(t, a, snapshotAtOnce(t, livetest.Open(t, a, clrsnap.Options{})), runtime)
	})
	livetest.EndsWell(t, a)
}

// snapshotAtOnce tries again if a thread or the tracer got no CPU in time: then the batch is given up.
func snapshotAtOnce(t *testing.T, p *clrsnap.Process) *snapshot.Snapshot {
	t.Helper()
	const most = 3
	for n := 1; ; n++ {
		snap, err := p.SnapshotAtOnce(context.Background(), nil)
		switch {
		case n < most && (errors.Is(err, live.ErrWatchdog) ||
			err == nil && slices.ContainsFunc(snap.Threads, livetest.Starved)):
			t.Log("ONCE MORE: threads were let go before they were captured")
		case err != nil:
			t.Fatal(err)
		default:
			return snap
		}
	}
}

func checkScenarios(t *testing.T, a *testenv.App, snap *snapshot.Snapshot, runtime string) {
	byTID := map[int]*snapshot.Thread{}
	for i := range snap.Threads {
		th := &snap.Threads[i]
		byTID[th.OSThreadID] = th
		wantComplete(t, th)
	}
	for name, want := range a.Stacks {
		th := byTID[want.TID]
		if th == nil {
			t.Errorf("%s: no thread %d in the snapshot", name, want.TID)
			continue
		}
		if err := compareStack(th, want); err != nil {
			t.Errorf("%s: %v\n%s--\n%s", name, err, livetest.Text(th.Frames), strings.Join(want.Lines, "\n"))
		}
		checkNative(t, name, th)
	}
	checkIdentity(t, a, byTID)
	checkDisplay(t, a, byTID, runtime)
}

// compareStack compares a walked thread with the program's own description. Everything must be equal from the
// scenario's block method to the base, with these rules and no others:
//
//   - above: frames above the block method are the calls by which the method blocks.
//   - native: StackTrace has no native frames.
//   - il-stub: StackTrace has no frames without metadata that the runtime made.
//   - pinvoke: StackTrace lists the DllImport method, once for its Frame and perhaps once more for its stub. On the
//     stack there is native code, and for some signatures an IL stub; from .NET 11 on the stub is code of the DllImport
//     method itself. Before .NET 10 StackTrace likewise lists methods that the runtime implements, for their
//     HelperMethodFrames; and, where the runtime asks managed code how to resolve a call, the abstract method for the
//     StubDispatchFrame.
//   - generic-handle: reflection's handle for generic code belongs to another instantiation.
//   - unboxed: reflection's handle for a struct's virtual method belongs to the unboxing stub; the code belongs to the
//     method itself.
//   - transition-ip: for a method that called native code, StackTrace has the ip in the Frame, so the offset may
//     differ.
func compareStack(th *snapshot.Thread, want testenv.Stack) error {
	got := th.Frames
	top := slices.IndexFunc(got, func(f snapshot.Frame) bool { return f.Method == want.Frames[0].Exact() })
	if top < 0 {
		return fmt.Errorf("rule above: there is no %s", want.Frames[0].Exact())
	}
	leftNative, first := false, true
	got = got[top:]
	for _, w := range want.Frames {
		for len(got) > 0 && (got[0].Kind == snapshot.Native || got[0].Tier == "IL stub") { // rules native, il-stub
			leftNative = leftNative || got[0].Kind == snapshot.Native
			got = got[1:]
		}
		if w.Kind == testenv.PInvoke {
			if !leftNative {
				return fmt.Errorf("rule pinvoke: no native frame for %s", w.Method)
			}
			if len(got) > 0 && got[0].FunctionID == w.MethodDesc { // the caller may be a method with the same name
				got = got[1:]
			}
			continue
		}
		if len(got) == 0 {
			return fmt.Errorf("%s and everything below it is missing", w.Exact())
		}
		if err := compareFrame(got[0], w, first || leftNative); err != nil {
			return err
		}
		got, leftNative, first = got[1:], false, false
	}
	if rest := livetest.OfKind(got, snapshot.Managed); len(rest) > 0 {
		return fmt.Errorf("%s is below the base of the stack", rest[0].Method)
	}
	return nil
}

func compareFrame(got snapshot.Frame, w testenv.Frame, anyOffset bool) error {
	if got.Method != w.Exact() {
		return fmt.Errorf("got %s, want %s", got.Method, w.Exact())
	}
	if w.Kind == testenv.Dynamic {
		if got.Tier != "dynamic" || got.Module != "" {
			return fmt.Errorf("%s: tier %q, module %q of a dynamic method", got.Method, got.Tier, got.Module)
		}
		return nil
	}
	if got.Module != w.Assembly {
		return fmt.Errorf("%s is in %q, want %q", got.Method, got.Module, w.Assembly)
	}
	if w.MethodDesc != got.FunctionID && !strings.Contains(got.Display, "<") && !unboxed(got.Method) {
		return fmt.Errorf("%s: FunctionID %#x, want %#x", got.Method, got.FunctionID, w.MethodDesc)
	}
	if !anyOffset && got.Offset != uint64(w.NativeOffset) {
		return fmt.Errorf("%s: offset %#x, want %#x", got.Method, got.Offset, w.NativeOffset)
	}
	return nil
}

// unboxed reports whether a method is a virtual method of a struct of the program: Counter, and the state machines of
// async methods (in optimised builds).
func unboxed(method string) bool {
	return strings.HasPrefix(method, "Scenarios.Calls+Counter.") ||
		strings.HasPrefix(method, "Scenarios.Async+<") && strings.HasSuffix(method, ".MoveNext")
}

// nativeLeaves are the functions of libc in which native scenarios block.
var nativeLeaves = map[string][]string{
	"pinvoke-sleep": {"clock_nanosleep", "nanosleep"},
	"pinvoke-poll":  {"poll"},
	"pinvoke-read":  {"read"},
	"calli-read":    {"read"},
	"qsort-sleep":   {"clock_nanosleep", "nanosleep"},
}

// callbacks are managed methods that libc's qsort called, and the callers of qsort.
var callbacks = map[string][2]string{
	"qsort-fnptr":    {"Scenarios.Native.CompareAndBlock", "Scenarios.Native.SortByFunctionPointer"},
	"qsort-delegate": {"Scenarios.Native.CompareInDelegate", "Scenarios.Native.SortByDelegate"},
	"qsort-sleep":    {"Scenarios.Native.CompareAndSleep", "Scenarios.Native.SortAndSleep"},
}

// ownStub are DllImport methods that call qsort, where the methods have code of their own.
var ownStub = map[string]string{"qsort-delegate": "Scenarios.Native.qsortDelegate"}

func checkNative(t *testing.T, scenario string, th *snapshot.Thread) {
	t.Helper()
	if want, ok := nativeLeaves[scenario]; ok {
		managed := func(f snapshot.Frame) bool { return f.Kind == snapshot.Managed }
		top := th.Frames[:max(0, slices.IndexFunc(th.Frames, managed))]
		if !slices.ContainsFunc(top, func(f snapshot.Frame) bool { return inLibc(f, want...) }) {
			t.Errorf("%s: none of %v above the first managed frame\n%s", scenario, want, livetest.Text(th.Frames))
		}
	}
	pair, ok := callbacks[scenario]
	if !ok {
		return
	}
	callee := slices.IndexFunc(th.Frames, func(f snapshot.Frame) bool { return f.Method == pair[0] })
	caller := slices.IndexFunc(th.Frames, func(f snapshot.Frame) bool { return f.Method == pair[1] })
	if callee < 0 || caller < callee {
		t.Errorf("%s: %s at %d, %s at %d", scenario, pair[0], callee, pair[1], caller)
		return
	}
	between := th.Frames[callee+1 : caller]
	if !slices.ContainsFunc(between, func(f snapshot.Frame) bool { return inLibc(f, "qsort_r", "qsort") }) {
		t.Errorf("%s: libc's qsort is not between callback and caller\n%s", scenario, livetest.Text(th.Frames))
	}
	for _, f := range between {
		if f.Kind == snapshot.Managed && f.Tier != "IL stub" && f.Method != ownStub[scenario] {
			t.Errorf("%s: %s between callback and caller", scenario, f.Method)
		}
	}
}

func inLibc(f snapshot.Frame, names ...string) bool {
	return f.Kind == snapshot.Native && strings.HasPrefix(f.Module, "libc.so") &&
		slices.Contains(names, strings.TrimLeft(f.Method, "_"))
}

// checkIdentity checks the description of threads besides their frames.
func checkIdentity(t *testing.T, a *testenv.App, byTID map[int]*snapshot.Thread) {
	t.Helper()
	states := map[string]string{
		"block":         "waiting (futex)",
		"pinvoke-sleep": "sleeping (clock_nanosleep)",
		"pinvoke-poll":  "waiting for I/O (poll)",
		"pinvoke-read":  "reading (read)",
	}
	roles := map[string]string{
		"finalizer":     "Finalizer",
		"pool-worker":   "ThreadPool worker",
		"timer":         "ThreadPool worker",
		"async-resumed": "ThreadPool worker",
	}
	for name, s := range a.Stacks {
		th := byTID[s.TID]
		if th == nil {
			continue // reported already
		}
		if th.Name != name || th.ManagedThreadID != s.ManagedID || th.Mode != "preemptive" || th.ThreadID == 0 {
			t.Errorf("%s: name %q, managed id %d (want %d), mode %q, ThreadID %#x",
				name, th.Name, th.ManagedThreadID, s.ManagedID, th.Mode, th.ThreadID)
		}
		// A system call interrupted by an earlier stop goes on as restart_syscall.
		if want, ok := states[name]; ok && th.State != want && th.State != "waiting (restart_syscall)" {
			t.Errorf("%s: state %q, want %q", name, th.State, want)
		}
		if th.Role != roles[name] {
			t.Errorf("%s: role %q, want %q", name, th.Role, roles[name])
		}
	}
	if m := byTID[a.PID]; m == nil || m.Role != "Main" || m.ManagedThreadID != 1 {
		t.Errorf("main thread: %+v", m)
	}
	count := map[string]int{}
	for _, th := range byTID {
		count[th.Role]++
	}
	for _, role := range []string{"Main", "Finalizer", "Signal handler", "Timer", "ThreadPool gate"} {
		if count[role] != 1 {
			t.Errorf("%d threads have the role %q, want 1: %v", count[role], role, count)
		}
	}
	// The thread ends after four seconds without work: TestDoStackSnapshotPreemptive meets the thread.
	if role := "Tiered compilation"; count[role] > 1 {
		t.Errorf("%d threads have the role %q, want 1 at most: %v", count[role], role, count)
	}
}

// wantComplete requires that the walk of a thread reached its base.
func wantComplete(t *testing.T, th *snapshot.Thread) {
	t.Helper()
	if !th.Complete || th.Error != "" {
		t.Errorf("thread %d %q: complete %v, error %q\n%s",
			th.OSThreadID, th.Name, th.Complete, th.Error, livetest.Text(th.Frames))
	}
}
