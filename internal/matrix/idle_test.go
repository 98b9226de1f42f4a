package matrix

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// TestIdleThreads: the runtime's threads that wait for work are told from threads that wait in code of the program,
// even if the program's code has the names of the runtime's code.
func TestIdleThreads(t *testing.T) { testenv.EachRuntime(t, testIdleThreads) }

func testIdleThreads(t *testing.T, runtime string) {
	a := testenv.Start(t, "idle", testenv.Options{
		Runtime: runtime, Args: []string{"--threads", "5", "--pool", "3", "--resting"},
	})
	snap, err := livetest.Open(t, a, clrsnap.Options{}).SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const pretenders, workers = 3, 4 // of Resting.cs
	const main = 3                   // the main thread, and two of App.cs
	count, own := map[snapshot.Idle]int{}, 0
	for i := range snap.Threads {
		th := &snap.Threads[i]
		idle := th.Idle()
		count[idle]++
		if slices.ContainsFunc(th.Frames, func(f snapshot.Frame) bool { return f.Module == "idle" }) {
			if own++; idle != "" {
				t.Errorf("%q: %q\n%s", th.Name, idle, livetest.Text(th.Frames))
			}
		} else if idle == "" {
			t.Logf("not idle: %q, %s, %s\n%s", th.Name, th.Role, th.State, livetest.Text(th.Frames))
		}
	}
	if own != main+5+3+pretenders {
		t.Errorf("%d threads in code of the program", own)
	}
	for idle, want := range map[snapshot.Idle]int{
		snapshot.IdleWorker: workers, snapshot.IdleTimer: 1, snapshot.IdleGate: 1, snapshot.IdleWaiter: 1,
		snapshot.IdleSockets: 1, "finalizer": 1,
	} {
		if count[idle] != want && (idle != snapshot.IdleWorker || count[idle] < want) {
			t.Errorf("%d are idle as %q, want %d", count[idle], idle, want)
		}
	}
	t.Logf("%v", count)
	livetest.EndsWell(t, a)
}

// TestInheritedNames: a thread without a name has the kernel's name of the thread that started it. clrsnap gives the
// thread neither the starter's name nor the starter's role, in live processes and dumps.
func TestInheritedNames(t *testing.T) { testenv.EachVersion(t, testInheritedNames) }

func testInheritedNames(t *testing.T, runtime string) {
	const kind = testenv.DumpGCore
	a := testenv.Start(t, "idle", testenv.DumpOptions(t, kind, testenv.Options{
		Runtime: runtime, Args: []string{"--threads", "1", "--pool", "3", "--heirs"},
	}))
	heirs := a.Ask("heirs")
	check := func(t *testing.T, snap *snapshot.Snapshot) {
		count, native := map[string]int{}, 0
		for i := range snap.Threads {
			th := &snap.Threads[i]
			isHeir := slices.Contains(heirs, strconv.Itoa(th.OSThreadID))
			pauses := func(f snapshot.Frame) bool { return f.Method == "pause" }
			if th.ThreadID == 0 && slices.ContainsFunc(th.Frames, pauses) {
				native++
				isHeir = true
			}
			if !isHeir {
				count[th.Role]++
			} else if th.Role != "" || strings.HasPrefix(th.Name, ".NET") || th.Idle() != "" {
				t.Errorf("thread %d: role %q, name %q, idle %q", th.OSThreadID, th.Role, th.Name, th.Idle())
			}
		}
		if len(heirs) != 3 || native != 1 {
			t.Errorf("%d heirs, of which %d native", len(heirs), native)
		}
		if count["Finalizer"] != 1 || count["ThreadPool worker"] < 3 {
			t.Errorf("roles: %v", count)
		}
	}
	snap, err := livetest.Open(t, a, clrsnap.Options{}).SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, snap)
	if kind.Runs(runtime) {
		t.Run("dump", func(t *testing.T) {
			check(t, livetest.SnapshotCore(t, testenv.Dump(t, a, kind), clrsnap.CoreOptions{}))
		})
	}
	livetest.EndsWell(t, a)
}

// TestAsyncMain: the main thread of a program whose Main is asynchronous, and returns an int, is idle, and is not
// listed beside threads that wait for something. TestIdleIsNotWork (package record) has a Main that returns nothing.
func TestAsyncMain(t *testing.T) {
	testenv.EachOf(t, []string{testenv.DefaultRuntime, testenv.NewestRuntime}, testAsyncMain)
}

func testAsyncMain(t *testing.T, runtime string) {
	a := testenv.Start(t, "shop", testenv.Options{Runtime: runtime})
	p := livetest.Open(t, a, clrsnap.Options{})
	const main, other = "async Shop.Program.Main ", "Common.App.WaitForEnd" // the thread of other waits for an event
	var snap *snapshot.Snapshot
	var graph *snapshot.WaitGraph
	testenv.UntilSeen(t, func() string { // the thread may be about to wait
		var err error
		if snap, err = p.SnapshotWaits(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		graph = snap.WaitGraph()
		var text strings.Builder
		if err := report.WaitGraph(&text, snap, graph, report.WaitGraphOptions{All: true}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), other) || !strings.Contains(text.String(), main) {
			return "the thread that waits for the end, and the async Main, in\n" + text.String()
		}
		return ""
	})
	for _, all := range []bool{false, true} {
		var text strings.Builder
		if err := report.WaitGraph(&text, snap, graph, report.WaitGraphOptions{All: all}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), other) || strings.Contains(text.String(), main) != all {
			t.Errorf("all: %v\n%s", all, text.String())
		}
	}
}
