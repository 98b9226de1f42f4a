package session_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestWaits: each thread of a program waits in a way of its own. clrsnap stops no thread and finds the waits that the
// program itself notes.
func TestWaits(t *testing.T) { testenv.EachRuntime(t, testWaits) }

func testWaits(t *testing.T, runtime string) {
	a := startWaits(t, runtime, testenv.Options{})
	p := livetest.Open(t, a, clrsnap.Options{})
	for _, take := range []func(context.Context, clrsnap.Filter) (*snapshot.Snapshot, error){
		p.SnapshotAll, p.SnapshotAtOnce,
	} {
		checkWaits(t, a, runtime, func() *snapshot.Snapshot {
			snap, err := take(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return snap
		})
	}
	livetest.EndsWell(t, a)
}

// TestWaitsJitted is TestWaits with all methods of the framework compiled at run time. Stacks then have other frames of
// a wait than with the code of .NET 11's own images.
func TestWaitsJitted(t *testing.T) {
	testenv.EachOf(t, []string{"net11"}, func(t *testing.T, runtime string) {
		a := startWaits(t, runtime, testenv.Options{Env: []string{"DOTNET_ReadyToRun=0"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		checkWaits(t, a, runtime, func() *snapshot.Snapshot {
			snap, err := p.SnapshotAll(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return snap
		})
		livetest.EndsWell(t, a)
	})
}

// TestWaitsCollecting: waits that clrsnap calls certain are right, while the collector moves the objects all the time.
func TestWaitsCollecting(t *testing.T) { testenv.EachVersion(t, testWaitsCollecting) }

func testWaitsCollecting(t *testing.T, runtime string) {
	a := startWaits(t, runtime, testenv.Options{Args: []string{"--collect"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	truths, _ := askWaits(t, a)
	looks, certain, uncertain, without := 0, 0, 0, 0
	never := map[string]bool{}
	for _, truth := range truths {
		never[truth["thread"]] = !strings.HasPrefix(truth["thread"], "barrier") // a barrier's thread may have woken
	}
	maps.DeleteFunc(never, func(_ string, is bool) bool { return !is })
	few := func() bool { return looks < 6 || len(never) > 0 }
	for on := livetest.GoOn(0, few); on(); looks++ {
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		threads := livetest.ByName(snap)
		for _, truth := range truths {
			th := threads[truth["thread"]]
			if th == nil {
				t.Errorf("no thread is called %q", truth["thread"])
				continue
			}
			switch w := th.Wait; {
			case strings.HasPrefix(truth["thread"], "barrier"):
			case w == nil || !w.Certain:
				uncertain++
			case w.Object == 0 && truth["object"] != "":
				without++
			default:
				certain++
				delete(never, th.Name)
				truth = maps.Clone(truth)
				delete(truth, "object") // the object has been moved since
				delete(truth, "tasks")
				if w.Field == "" {
					delete(truth, "field") // the field is unknown then
				}
				if strings.HasPrefix(truth["target"], w.Target+" ") {
					delete(truth, "target") // likewise the socket
				}
				if err := truth.check(w, threads, runtime, false); err != nil {
					t.Errorf("%q: %v\n%s\n%+v", th.Name, err, livetest.Text(th.Frames), w)
				}
			}
		}
	}
	t.Logf("%d looks: %d waits certain, %d of them without their object, %d uncertain", looks, certain+without, without,
		uncertain)
	for name := range never {
		t.Errorf("%s was never certain", name)
	}
	livetest.EndsWell(t, a)
}

// TestWaitsOfServer: the garbage collector of servers has several heaps.
func TestWaitsOfServer(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := startWaits(t, runtime, testenv.Options{Env: []string{"DOTNET_gcServer=1", "DOTNET_GCHeapCount=2"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		checkWaits(t, a, runtime, func() *snapshot.Snapshot {
			snap, err := p.SnapshotAll(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return snap
		})
	})
}

// TestWaitsOfCore: a dump of the program says the same.
func TestWaitsOfCore(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := startWaits(t, runtime, testenv.Options{})
		testenv.DumpShared(t, a.PID)
		checkWaits(t, a, runtime, func() *snapshot.Snapshot {
			return livetest.SnapshotCore(t, testenv.GCoreDump(t, a.PID), clrsnap.CoreOptions{})
		})
	})
}

func startWaits(t *testing.T, runtime string, o testenv.Options) *testenv.App {
	t.Helper()
	o.Runtime = runtime
	return testenv.Start(t, "waits", o)
}

// waitTruth is the program's note about a thread: see Zoo.Truths.
type waitTruth map[string]string

func askWaits(t *testing.T, a *testenv.App) (waits, holds []waitTruth) {
	t.Helper()
	waits, holds = askTruths(t, a)
	if len(waits) < 40 {
		t.Fatalf("only %d waits", len(waits))
	}
	return waits, holds
}

func askTruths(t *testing.T, a *testenv.App) (waits, holds []waitTruth) {
	t.Helper()
	for _, line := range a.Ask("truths") {
		words := strings.Split(line, "\t")
		truth := waitTruth{}
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			truth[name] = value
		}
		switch words[0] {
		case "wait":
			waits = append(waits, truth)
		case "hold":
			holds = append(holds, truth)
		default:
			t.Fatalf("%q", line)
		}
	}
	return waits, holds
}

// checkWaits compares snapshots with the program's notes, until a snapshot is equal. A thread spins before the thread
// blocks, for long beside other threads, and a thread at a Barrier wakes from time to time: then its wait has no object
// yet.
func checkWaits(t *testing.T, a *testenv.App, runtime string, take func() *snapshot.Snapshot) {
	t.Helper()
	waits, holds := askWaits(t, a)
	testenv.UntilSeen(t, func() string { return strings.Join(compareWaits(waits, holds, take(), runtime), "\n") })
}

func compareWaits(waits, holds []waitTruth, snap *snapshot.Snapshot, runtime string) (wrong []string) {
	threads := livetest.ByName(snap)
	for _, truth := range waits {
		th := threads[truth["thread"]]
		if th == nil {
			wrong = append(wrong, "no thread "+truth["thread"])
		} else if err := truth.check(th.Wait, threads, runtime, snap.Process.Core != nil); err != nil {
			wrong = append(wrong, fmt.Sprintf("%q: %v\n%s\n%+v", th.Name, err, livetest.Text(th.Frames), th.Wait))
		}
	}
	for name, th := range threads {
		if err := checkHolds(th, holds); err != nil {
			wrong = append(wrong, fmt.Sprintf("%q: %v\n%s", name, err, livetest.Text(th.Frames)))
		}
	}
	return wrong
}

// checkHolds requires that a thread holds the locks in the program's notes, and nothing else.
func checkHolds(th *snapshot.Thread, holds []waitTruth) error {
	var want, got []string
	for _, h := range holds {
		if h["thread"] == th.Name {
			want = append(want, strings.Join([]string{
				h["kind"], h["type"], cmp.Or(h["object"], "0x0"), cmp.Or(h["recursion"], "0"), h["waiters"],
				h["detail"],
			}, " "))
		}
	}
	for _, h := range th.Holds {
		got = append(got, fmt.Sprintf("%s %s %#x %d %d %s", h.Kind, h.Type, h.Object, h.Recursion, h.Waiters, h.Detail))
		if !h.Certain {
			return fmt.Errorf("not certain: %+v", h)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("holds %q, want %q", got, want)
	}
	return checkHeldFields(th, holds)
}

// checkHeldFields requires that the locks of a thread are in the fields in the program's notes.
func checkHeldFields(th *snapshot.Thread, holds []waitTruth) error {
	for _, truth := range holds {
		want, known := truth["field"]
		for _, h := range th.Holds {
			if known && truth["thread"] == th.Name && fmt.Sprintf("%#x", h.Object) == truth["object"] &&
				h.Field != want {
				return fmt.Errorf("holds %s in field %q, want %q", truth["object"], h.Field, want)
			}
		}
	}
	return nil
}

// withoutObject are the kinds of wait whose frames do not always keep the object.
var withoutObject = map[snapshot.WaitKind]bool{snapshot.CountdownWait: true}

func (truth waitTruth) check(
	w *snapshot.Wait, threads map[string]*snapshot.Thread, runtime string, core bool,
) error {
	if w == nil {
		return fmt.Errorf("no wait, want %v", truth)
	}
	kind := snapshot.WaitKind(truth["kind"])
	if !w.Certain {
		return fmt.Errorf("not certain, want %v", truth)
	}
	seen := waitTruth{
		"kind": string(w.Kind), "type": w.Type, "object": fmt.Sprintf("%#x", w.Object), "target": w.Target,
		"field": w.Field, "detail": w.Detail, "tasks": tasksOf(w),
	}
	owner := ""
	if w.Owner != nil {
		owner = w.Owner.Name
		if th := threads[owner]; th == nil || th.OSThreadID != w.Owner.OSThreadID ||
			th.ManagedThreadID != w.Owner.ManagedThreadID {
			return fmt.Errorf("owner %+v", w.Owner)
		}
	}
	if w.Object != 0 || !withoutObject[kind] {
		seen["recursion"], seen["waiters"] = strconv.Itoa(w.Recursion), strconv.Itoa(w.Waiters)
	}
	for name, want := range truth {
		got, known := seen[name]
		switch {
		case name == "thread":
			continue
		case name == "timeout":
			if err := checkTimeout(w, want); err != nil {
				return err
			}
			continue
		case name == "owner":
			got, known = owner, true
		case w.Object == 0 && withoutObject[kind]:
			continue
		case name == "target" && core:
			want, _, _ = strings.Cut(want, " ")
		}
		if known && got != want {
			return fmt.Errorf("%s %s, want %s", name, got, want)
		}
	}
	if err := truth.checkRest(w, core); err != nil {
		return err
	}
	if truth["owner"] == "" && owner != "" {
		return fmt.Errorf("owner %s, want none", owner)
	}
	return nil
}

// tasksOf are the addresses of the tasks for which a thread waits.
func tasksOf(w *snapshot.Wait) string {
	var out []string
	for i := range w.Tasks {
		out = append(out, fmt.Sprintf("%#x", w.Tasks[i].Object))
	}
	return strings.Join(out, " ")
}

// TestWaitsWitness: Microsoft's own reader of the runtime stops the program and goes through its whole heap. The reader
// finds the same locks held, by the same threads, as often.
func TestWaitsWitness(t *testing.T) {
	var installed []string
	for _, b := range testenv.InstalledRuntimes() {
		installed = append(installed, b.Runtime)
	}
	testenv.EachOf(t, installed, testWaitsWitness)
}

func testWaitsWitness(t *testing.T, runtime string) {
	a := startWaits(t, runtime, testenv.Options{})
	before := heldLocks(t, a)
	want := witnessedLocks(t, a)
	// A thread that runs, as Main does until it reads the next command, may hold a lock for a moment.
	after := heldLocks(t, a)
	for _, look := range []map[int][]string{before, after} {
		for thread := range look {
			if !slices.Equal(before[thread], after[thread]) {
				delete(before, thread)
				delete(want, thread)
			}
		}
	}
	if !maps.EqualFunc(before, want, slices.Equal) || len(want) < 8 {
		t.Errorf("held are\n%v\nand the witness says\n%v", before, want)
	}
}

// heldLocks are the locks that clrsnap finds held, with their recursion, by thread.
func heldLocks(t *testing.T, a *testenv.App) map[int][]string {
	t.Helper()
	p := livetest.Open(t, a, clrsnap.Options{})
	defer p.Close()
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	held := map[int][]string{}
	for _, th := range snap.Threads {
		for _, h := range th.Holds {
			if h.Kind == snapshot.MonitorEnter || h.Kind == snapshot.LockEnter {
				held[th.OSThreadID] = append(held[th.OSThreadID], fmt.Sprintf("%#x %d", h.Object, h.Recursion))
			}
		}
		slices.Sort(held[th.OSThreadID])
	}
	return held
}

// witnessedLocks are the locks that the witness finds held, with their recursion, by thread. The witness counts the
// entries after the first, but for monitors with a sync block all entries.
func witnessedLocks(t *testing.T, a *testenv.App) map[int][]string {
	t.Helper()
	held := map[int][]string{}
	out := testenv.AskClrMD(t, "locks", a)
	for line := range bytes.Lines(out) {
		var l struct {
			Kind, Object string
			Owner        int
			Recursion    int
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Kind != "Monitor" {
			l.Recursion++
		}
		if l.Owner != 0 {
			held[l.Owner] = append(held[l.Owner], fmt.Sprintf("%s %d", l.Object, l.Recursion))
		}
	}
	for _, locks := range held {
		slices.Sort(locks)
	}
	return held
}

// checkRest requires the remaining time of threads that wait for an hour.
func (truth waitTruth) checkRest(w *snapshot.Wait, core bool) error {
	if core || truth["timeout"] != "3600000" && truth["thread"] != "sleep" || !hours[w.Kind] {
		return nil
	}
	if w.Rest > time.Hour || w.Rest < 50*time.Minute {
		return fmt.Errorf("%v left, want a little less than an hour", w.Rest)
	}
	return nil
}

// hours are the kinds of wait with a known remaining time on all runtimes.
var hours = map[snapshot.WaitKind]bool{
	snapshot.MonitorEnter: true, snapshot.MonitorWait: true, snapshot.ThreadSleep: true,
	snapshot.ThreadJoin: true,
}

// checkTimeout compares a timeout in ms. Some primitives deduct the time of an earlier spin.
func checkTimeout(w *snapshot.Wait, want string) error {
	ms, err := strconv.Atoi(want)
	switch {
	case err != nil || w.Timeout == 0:
		return err
	case ms < 0 && w.Timeout != snapshot.Forever,
		ms >= 0 &&
			(w.Timeout > time.Duration(ms)*time.Millisecond || w.Timeout < time.Duration(ms-30_000)*time.Millisecond):
		return fmt.Errorf("timeout %v, want %v ms", w.Timeout, ms)
	}
	return nil
}
