package session_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// hotWaits are the ways to optimise the code that waits: the frames of its callees are inlined then, and the awaited
// object need not be on the stack.
var hotWaits = map[string][]string{
	"tiered up":             nil,
	"optimised":             {"DOTNET_TieredCompilation=0"},
	"optimised, all jitted": {"DOTNET_TieredCompilation=0", "DOTNET_ReadyToRun=0"},
}

// TestHotWaits: clrsnap finds the waits of threads in optimised code, all of them certain. The program's own notes are
// the truth.
func TestHotWaits(t *testing.T) {
	eachHotWaits(t, nil, slices.Sorted(maps.Keys(hotWaits)), func(t *testing.T, a *testenv.App, runtime string) {
		p := livetest.Open(t, a, clrsnap.Options{})
		waits, _ := askTruths(t, a)
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		threads, optimised := livetest.ByName(snap), 0
		for _, truth := range waits {
			th := threads[truth["thread"]]
			if th == nil {
				t.Errorf("no thread %s", truth["thread"])
				continue
			}
			if err := truth.check(th.Wait, threads, runtime, false); err != nil {
				t.Errorf("%q: %v\n%s\n%+v", th.Name, err, livetest.Text(th.Frames), th.Wait)
			}
			if hasOptimised(th) {
				optimised++
			}
		}
		t.Logf("%d of %d methods that wait are optimised", optimised, len(waits))
	})
}

// hasOptimised reports whether the program's waiting method is optimised.
func hasOptimised(th *snapshot.Thread) bool {
	for i := range th.Frames {
		if f := &th.Frames[i]; f.Module == "hotwaits" {
			return f.Tier == "tier-1" || f.Tier == "optimized"
		}
	}
	return false
}

// TestHotWaitsBrief: threads wait for a thousandth of a second, again and again. Certain waits are right. Each thread's
// wait is certain at least once: clrsnap looks again at a thread that has woken meanwhile.
func TestHotWaitsBrief(t *testing.T) {
	eachHotWaits(t, []string{"--short"}, []string{"optimised"}, func(t *testing.T, a *testenv.App, runtime string) {
		p := livetest.Open(t, a, clrsnap.Options{})
		waits, _ := askTruths(t, a)
		never := map[string]bool{}
		for _, truth := range waits {
			never[truth["thread"]] = true
		}
		looks, certain, uncertain := 0, 0, 0
		for on := livetest.GoOn(0, func() bool { return len(never) > 0 }); on(); looks++ {
			snap, err := p.SnapshotAll(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			threads := livetest.ByName(snap)
			for _, truth := range waits {
				th := threads[truth["thread"]]
				switch w := th.Wait; {
				case w == nil || !w.Certain:
					uncertain++
				case checkBrief(t, truth, th, threads, runtime):
					certain++
					delete(never, th.Name)
				}
			}
		}
		t.Logf("%d looks: %d waits are certain, %d uncertain", looks, certain, uncertain)
		for name := range never {
			t.Errorf("%s was never certain", name)
		}
	})
}

// checkBrief requires that the facts about a wait are right. checkBrief reports whether the facts are complete: a
// thread that still spins before its wait keeps less.
func checkBrief(
	t *testing.T, truth waitTruth, th *snapshot.Thread, threads map[string]*snapshot.Thread, runtime string,
) bool {
	t.Helper()
	w, said := th.Wait, maps.Clone(truth)
	if w.Kind == snapshot.MonitorEnter && entersForFramework(th) || w.Kind == snapshot.WaitRuntime {
		return false // a thread on the way into its wait may wait for a lock of the runtime itself
	}
	if w.Object == 0 && said["type"] != "" {
		delete(said, "type")
	}
	if w.Field == "" {
		delete(said, "field")
	}
	if w.Owner == nil {
		delete(said, "owner")
	}
	if w.Detail == "" {
		delete(said, "detail")
	}
	if err := said.check(w, threads, runtime, false); err != nil {
		t.Errorf("%q: %v\n%s\n%+v", th.Name, err, livetest.Text(th.Frames), w)
	}
	return len(said) == len(truth)
}

// entersForFramework reports whether the framework, not the program, has called Monitor.Enter. The framework does so
// for a moment before and after a wait, for the list of a task's continuations, for example.
func entersForFramework(th *snapshot.Thread) bool {
	entered := false
	for i := range th.Frames {
		switch f := &th.Frames[i]; {
		case strings.HasPrefix(f.Method, "System.Threading.Monitor.Enter"):
			entered = true
		case entered && f.Module != "":
			return f.Module != "hotwaits"
		}
	}
	return false
}

func eachHotWaits(
	t *testing.T, args, ways []string, test func(t *testing.T, a *testenv.App, runtime string),
) {
	t.Helper()
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, name := range ways {
			t.Run(name, func(t *testing.T) {
				a := testenv.Start(t, "hotwaits", testenv.Options{Runtime: runtime, Args: args, Env: hotWaits[name]})
				test(t, a, runtime)
				livetest.EndsWell(t, a)
			})
		}
	})
}
