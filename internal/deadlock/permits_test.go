package deadlock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// TestLikely: a program has deadlocks with permits of semaphores, suspended methods and tasks completed by hand, and
// sets that only look like deadlocks. clrsnap finds the likely deadlocks of the program's notes.
func TestLikely(t *testing.T) { testenv.EachOfKit(t, testLikely) }

// TestLikelyCompiled is TestLikely for code that was optimised at once, and for a debug build with state machines that
// are classes.
func TestLikelyCompiled(t *testing.T) {
	layer.Matrix(t)
	for name, o := range map[string]testenv.Options{
		"optimized": {Env: []string{"DOTNET_TieredCompilation=0"}},
		"debug":     {Compile: []string{"-o-"}, Runtime: "net9"},
	} {
		t.Run(name, func(t *testing.T) {
			a := testenv.Start(t, "deadlocks", o)
			p := livetest.Open(t, a, clrsnap.Options{Permits: clrsnap.PermitsAlways})
			compareLikely(t, name, snapshotWaits(t, p), askLikely(t, a))
			livetest.EndsWell(t, a)
		})
	}
}

// TestLikelyRuntimeAsync is TestLikely for methods that the runtime itself suspends.
func TestLikelyRuntimeAsync(t *testing.T) {
	for _, tt := range livetest.ResumedWays {
		t.Run(tt.Name, func(t *testing.T) {
			testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
				a := testenv.Start(t, "deadlocks", testenv.Options{
					Runtime: runtime, Env: tt.Env, Compile: livetest.RuntimeAsync, ReadyToRun: tt.ReadyToRun,
				})
				p := livetest.Open(t, a, clrsnap.Options{Permits: clrsnap.PermitsAlways, Lines: true})
				compareLikely(t, "live", snapshotWaits(t, p), askLikely(t, a))
				livetest.EndsWell(t, a)
			})
		})
	}
}

func testLikely(t *testing.T, runtime string) {
	a := testenv.Start(t, "deadlocks", testenv.Options{Runtime: runtime})
	want := askLikely(t, a)
	p := livetest.Open(t, a, clrsnap.Options{Permits: clrsnap.PermitsAlways, Lines: true})
	began := time.Now()
	s := snapshotWaits(t, p)
	t.Logf("%d threads, %d suspended methods, %d needs in %v", len(s.Threads), len(s.Awaits), len(s.LikelyEdges),
		time.Since(began))
	compareLikely(t, "live", s, want)
	soon := livetest.Open(t, a, clrsnap.Options{Permits: clrsnap.PermitsSoon, Lines: true})
	if s = snapshotWaits(t, soon); s.Unsearched != "" {
		t.Log(s.Unsearched) // the machine is busy
	} else {
		compareLikely(t, "soon", s, want)
	}
	o := clrsnap.CoreOptions{Options: clrsnap.Options{Permits: clrsnap.PermitsAlways, Lines: true}}
	core, err := clrsnap.OpenCore(context.Background(), testenv.GCoreDump(t, a.PID), o)
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	compareLikely(t, "core", snapshotWaits(t, core), want)
	livetest.EndsWell(t, a)
}

// askLikely returns the members and the victims of each likely deadlock in the program's notes.
func askLikely(t *testing.T, a *testenv.App) map[string]string {
	t.Helper()
	want := map[string]string{}
	for _, line := range a.Ask("truths") {
		f := strings.Split(line, "\t")
		if len(f) != 4 || f[0] != "likely" {
			continue
		}
		members := strings.Fields(f[1])
		set, _, _ := strings.Cut(members[0], "-")
		want[set] = setText("likely", members, strings.Fields(f[2]), false)
	}
	if len(want) < 15 {
		t.Fatalf("only %d sets: %v", len(want), want)
	}
	return want
}

func compareLikely(t *testing.T, of string, s *snapshot.Snapshot, want map[string]string) {
	t.Helper()
	g := s.WaitGraph()
	got := map[string]string{}
	for i := range g.Likely {
		d := &g.Likely[i]
		text := report.LikelyText(s, d)
		t.Logf("%s: %s", of, text)
		nodes := slices.Concat(d.Members, d.Others)
		members := nodeNames(s, nodes)
		set := setOfParties(members)
		list := withSet(set, members)
		for _, name := range withSet(set, namesBehind(s, nodes)) {
			if strings.Contains(want[set], name) && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
		got[set] += setText("likely", list, names(s, d.Victims), false)
	}
	for set, text := range want {
		if got[set] != text {
			t.Errorf("%s: %s: %q, want %q", of, set, got[set], text)
			logSet(t, s, set)
		}
	}
	for set, text := range got {
		if want[set] == "" {
			t.Errorf("%s: %s: %q, want none", of, set, text)
		}
	}
}

// nodeNames are the names of threads, and the names of methods with their class: "Crossed.First".
func nodeNames(s *snapshot.Snapshot, list []snapshot.WaitNode) (out []string) {
	for _, p := range list {
		if p.Thread >= 0 {
			out = append(out, s.Threads[p.Thread].Name)
			continue
		}
		name, _, _ := strings.Cut(s.Awaits[p.Await].Frames[0].Short, "{async")
		out = append(out, strings.TrimPrefix(name, "Permits."))
	}
	return out
}

// namesBehind are the names of the methods that await the methods of nodeNames. Methods that the runtime itself has
// suspended together are one node.
func namesBehind(s *snapshot.Snapshot, list []snapshot.WaitNode) (out []string) {
	for _, p := range list {
		if p.Thread >= 0 {
			continue
		}
		for _, f := range s.Awaits[p.Await].Frames[1:] {
			name, _, _ := strings.Cut(f.Short, "{async")
			out = append(out, strings.TrimPrefix(name, "Permits."))
		}
	}
	return out
}

// setOfParties is the set of a thread in members. Without a thread, the set is named after the class of the first
// method.
func setOfParties(members []string) string {
	for _, m := range members {
		if set, _, ok := strings.Cut(m, "-"); ok {
			return set
		}
	}
	for _, m := range members {
		if class, _, _ := strings.Cut(m, "."); class != "SemaphoreSlim" && class != "AsyncLock" {
			return strings.ToLower(class)
		}
	}
	return ""
}

// withSet names methods as the program does: "crossed-First".
func withSet(set string, members []string) []string {
	out := slices.Clone(members)
	for i, m := range out {
		if strings.HasPrefix(m, set+"-") {
			continue
		}
		if at := strings.Index(m, "{lambda "); at >= 0 {
			m = m[:at] + "{lambda}"
		}
		out[i] = set + "-" + m[strings.LastIndexByte(m, '.')+1:]
	}
	return out
}

// logSet shows the wait edges of the threads and methods of a set.
func logSet(t *testing.T, s *snapshot.Snapshot, set string) {
	t.Helper()
	for i := range s.Threads {
		if th := &s.Threads[i]; strings.HasPrefix(th.Name, set+"-") {
			t.Logf("%q: %s\n%s", th.Name, waitText(th.Wait), livetest.Text(th.Frames))
		}
	}
	for i := range s.LikelyEdges {
		n := &s.LikelyEdges[i]
		of := nodeNames(s, []snapshot.WaitNode{n.Waiter})[0]
		if strings.Contains(strings.ToLower(of), set) {
			t.Logf("%s needs %s %x %s of %v", of, n.Kind, n.Object, n.Field, nodeNames(s, n.Holders))
		}
	}
}
