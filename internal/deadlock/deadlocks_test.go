package deadlock_test

import (
	"context"
	"fmt"
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

// TestDeadlocks: a program has deadlocks of every kind, and sets of threads that look like deadlocks but are none.
// clrsnap finds the deadlocks of the program's notes, in the process and in a dump.
func TestDeadlocks(t *testing.T) { testenv.EachVersion(t, testDeadlocks) }

// TestDeadlocksRuntimeAsync is TestDeadlocks for methods that the runtime itself suspends.
func TestDeadlocksRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "deadlocks", testenv.Options{Runtime: runtime, Compile: livetest.RuntimeAsync})
		want := askDeadlocks(t, a)
		p := livetest.Open(t, a, clrsnap.Options{})
		compareDeadlocks(t, "live", snapshotWaits(t, p), want)
		livetest.EndsWell(t, a)
	})
}

func testDeadlocks(t *testing.T, runtime string) {
	a := testenv.Start(t, "deadlocks", testenv.Options{Runtime: runtime})
	want := askDeadlocks(t, a)
	p := livetest.Open(t, a, clrsnap.Options{})
	began := time.Now()
	s := snapshotWaits(t, p)
	t.Logf("%d threads in %v, %d stops", len(s.Threads), time.Since(began), len(s.Stops))
	compareDeadlocks(t, "live", s, want)
	checkDeadlockFields(t, runtime, s)
	testenv.DumpShared(t, a.PID) // or else the owner of the named mutex is unknown
	compareDeadlocks(t, "core", livetest.SnapshotCore(t, testenv.GCoreDump(t, a.PID), clrsnap.CoreOptions{}), want)
	livetest.EndsWell(t, a)
}

// TestDeadlocksCollecting is TestDeadlocks while the collector moves the objects all the time. Uncertain deadlocks may
// be missing then, but the found deadlocks are right.
func TestDeadlocksCollecting(t *testing.T) {
	layer.Matrix(t)
	for _, runtime := range layer.Size([]string{"net9"}, testenv.AllRuntimes()) {
		t.Run(testenv.Name(runtime), func(t *testing.T) { testDeadlocksCollecting(t, runtime) })
	}
}

func testDeadlocksCollecting(t *testing.T, runtime string) {
	a := testenv.Start(t, "deadlocks", testenv.Options{Runtime: runtime, Args: []string{"--collect"}})
	want := askDeadlocks(t, a)
	p := livetest.Open(t, a, clrsnap.Options{})
	found, most := 0, 0
	for range 10 {
		got := setsOf(snapshotWaits(t, p))
		for name, text := range got {
			if members(want[name]) != members(text) && !strings.HasPrefix(text, "suspected") {
				t.Errorf("%s: %s, want %s", name, text, want[name])
			}
		}
		for name, text := range want {
			if most++; members(got[name]) == members(text) {
				found++
			}
		}
	}
	t.Logf("%d of %d found", found, most)
	if found < most/2 {
		t.Errorf("only %d of %d are found", found, most)
	}
	livetest.EndsWell(t, a)
}

// TestHealthy: threads that contend for locks at full speed are never in a deadlock.
func TestHealthy(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) { testHealthy(t, testenv.Options{Runtime: runtime}) })
}

// TestHealthyRuntimeAsync is TestHealthy for methods that the runtime itself suspends.
func TestHealthyRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		testHealthy(t, testenv.Options{Runtime: runtime, Compile: livetest.RuntimeAsync})
	})
}

func testHealthy(t *testing.T, o testenv.Options) {
	o.Args = []string{"--healthy"}
	a := testenv.Start(t, "deadlocks", o)
	p := livetest.Open(t, a, clrsnap.Options{Permits: clrsnap.PermitsAlways})
	looks, edges, suspected, needs := 0, 0, 0, 0
	look := func() {
		looks++
		s := snapshotWaits(t, p)
		g := s.WaitGraph()
		edges += len(g.Edges)
		suspected += len(g.Suspected)
		for i := range g.Deadlocks {
			t.Errorf("%s", report.DeadlockText(s, &g.Deadlocks[i]))
		}
		for i := range g.Likely {
			t.Errorf("%s", report.LikelyText(s, &g.Likely[i]))
		}
		needs += len(s.LikelyEdges)
	}
	for began := time.Now(); time.Since(began) < layer.Size(2*time.Second, time.Minute); {
		look()
	}
	testenv.UntilSeen(t, func() string {
		if looks < 3 || edges < looks || needs == 0 {
			look()
			return fmt.Sprintf("only %d waits in %d looks, and %d for permits", edges, looks, needs)
		}
		return ""
	})
	t.Logf("%d looks, %d waits for others, %d for permits and the like, %d circles suspected", looks, edges, needs,
		suspected)
	livetest.EndsWell(t, a)
}

// checkDeadlockFields requires that locks of deadlocks are named by the fields and variables that hold them.
func checkDeadlockFields(t *testing.T, runtime string, s *snapshot.Snapshot) {
	t.Helper()
	want := map[string]string{"two-1": "variable stock of Deadlocks.Monitors",
		"two-2": "variable order of Deadlocks.Monitors"}
	if !strings.HasPrefix(testenv.Framework(runtime), "net8") { // static fields of .NET 8 are not found
		want["settings-2"] = "Deadlocks.Others+Settings.Gate"
	}
	for i := range s.Threads {
		th := &s.Threads[i]
		if w := th.Wait; want[th.Name] != "" && (w == nil || w.Field != want[th.Name]) {
			t.Errorf("%q: %s, want field %s\n%s", th.Name, waitText(w), want[th.Name], livetest.Text(th.Frames))
		}
	}
}

// BenchmarkSnapshotWaits compares the cost of stacks with a search for twenty deadlocks with the cost of the stacks
// alone.
func BenchmarkSnapshotWaits(b *testing.B) {
	a := testenv.Start(b, "deadlocks", testenv.Options{})
	p := livetest.Open(b, a, clrsnap.Options{})
	for name, take := range map[string]func(context.Context, clrsnap.Filter) (*snapshot.Snapshot, error){
		"all": p.SnapshotAll, "waits": p.SnapshotWaits,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s, err := take(b.Context(), nil)
				if err != nil {
					b.Fatal(err)
				}
				s.WaitGraph()
			}
		})
	}
}

func snapshotWaits(t *testing.T, p *clrsnap.Process) *snapshot.Snapshot {
	t.Helper()
	s, err := p.SnapshotWaits(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// askDeadlocks returns the program's note about each set of threads: see Zoo.Truths.
func askDeadlocks(t *testing.T, a *testenv.App) map[string]string {
	t.Helper()
	want := map[string]string{}
	for _, line := range a.Ask("truths") {
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			t.Fatalf("%q", line)
		}
		members := strings.Fields(f[1])
		if set, _, _ := strings.Cut(members[0], "-"); f[0] == "deadlock" || f[0] == "suspected" {
			want[set] = setText(f[0], members, strings.Fields(f[2]), f[3] == "ended")
		}
	}
	if len(want) < 18 {
		t.Fatalf("only %d sets: %v", len(want), want)
	}
	return want
}

func setText(what string, members, victims []string, ended bool) string {
	slices.Sort(members)
	slices.Sort(victims)
	if ended {
		what += ", ended"
	}
	return fmt.Sprintf("%s %v < %v", what, members, victims)
}

// setsOf returns a snapshot's finding for each set.
func setsOf(s *snapshot.Snapshot) map[string]string {
	got := map[string]string{}
	g := s.WaitGraph()
	add := func(what string, list []snapshot.Deadlock) {
		for _, d := range list {
			in, victims := names(s, d.Threads), names(s, d.Victims)
			set, _, _ := strings.Cut(in[0], "-")
			text := setText(what, in, victims, d.Ended)
			if got[set] != "" {
				text += " and " + got[set]
			}
			got[set] = text
		}
	}
	add("deadlock", g.Deadlocks)
	add("suspected", g.Suspected)
	return got
}

// members is the text of a set without the set's victims.
func members(text string) string {
	text, _, _ = strings.Cut(text, " < ")
	return text
}

func names(s *snapshot.Snapshot, threads []int) (out []string) {
	for _, i := range threads {
		out = append(out, s.Threads[i].Name)
	}
	return out
}

func compareDeadlocks(t *testing.T, of string, s *snapshot.Snapshot, want map[string]string) {
	t.Helper()
	got := setsOf(s)
	for name, text := range want {
		if got[name] == text {
			continue
		}
		t.Errorf("%s: %s: %q, want %q", of, name, got[name], text)
		for i := range s.Threads {
			if th := &s.Threads[i]; strings.HasPrefix(th.Name, name+"-") {
				t.Logf("%q %s: %s, holds %+v\n%s", th.Name, th.State, waitText(th.Wait), th.Holds,
					livetest.Text(th.Frames))
			}
		}
	}
	for name, text := range got {
		if want[name] == "" {
			t.Errorf("%s: %s: %q, want none", of, name, text)
		}
	}
}

func waitText(w *snapshot.Wait) string {
	if w == nil {
		return "no wait"
	}
	return fmt.Sprintf("%+v, owner %+v", *w, w.Owner)
}

// TestDeadlocksAtRest: while the collector moves the objects all the time, each look with all threads stopped has
// exactly the deadlocks of the program, all of them certain.
func TestDeadlocksAtRest(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "deadlocks", testenv.Options{Runtime: runtime, Args: []string{"--collect"}})
		want := askDeadlocks(t, a)
		p := livetest.Open(t, a, clrsnap.Options{})
		livetest.AtRest(t, func() *snapshot.HeapStop {
			s, err := p.SnapshotWaitsAtRest(context.Background(), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if s.Stop != nil && s.Stop.Exact {
				compareDeadlocks(t, "at rest", s, want)
				for i := range s.Threads {
					if w := s.Threads[i].Wait; w != nil && !w.Certain && snapshot.LockKindOf(w) != "" {
						t.Errorf("thread %d: a wait that is not certain: %+v", s.Threads[i].OSThreadID, *w)
					}
				}
			}
			return s.Stop
		})
		livetest.EndsWell(t, a)
	})
}
