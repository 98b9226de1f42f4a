package details

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
)

// TestAsyncStacks: below async methods that have blocked their threads are the methods that await them, in every way
// there is, with the lines of their awaits, as the program itself notes them.
func TestAsyncStacks(t *testing.T) {
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--running"}})
		o := clrsnap.Options{Async: true, Lines: true, ExactGenerics: true, Inlined: true}
		p := livetest.Open(t, a, o)
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkAsyncStacks(t, a, snap)
		if snap, err = p.SnapshotAtOnce(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		checkAsyncStacks(t, a, snap)
		checkAsyncStacks(t, a, livetest.SnapshotCore(t, testenv.GCoreDump(t, a.PID), clrsnap.CoreOptions{Options: o}))
		livetest.EndsWell(t, a)
	})
}

// TestAsyncStacksOptimized: the same of code that was optimised at once.
func TestAsyncStacksOptimized(t *testing.T) {
	testenv.EachOfKit(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{
			Runtime: runtime, Args: []string{"--running"}, Env: []string{"DOTNET_TieredCompilation=0"},
		})
		p := livetest.Open(t, a, clrsnap.Options{Async: true, Lines: true})
		snap, err := p.SnapshotAll(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkAsyncStacks(t, a, snap)
		livetest.EndsWell(t, a)
	})
}

// TestAsyncStacksCollecting: while the collector moves objects all the time, what is shown is right.
func TestAsyncStacksCollecting(t *testing.T) {
	testenv.EachOfKit(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "tasks", testenv.Options{Runtime: runtime, Args: []string{"--running", "--collect"}})
		p := livetest.Open(t, a, clrsnap.Options{Async: true})
		shown, without := 0, 0
		for range 10 {
			snap, err := p.SnapshotAll(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			threads := threadsOf(snap)
			for _, truth := range a.Ask("truths") {
				words := strings.Split(truth, "\t")
				th := threads[words[0]]
				if !slices.ContainsFunc(th.Frames, func(f profile.Frame) bool { return f.Kind == profile.Async }) {
					without++
					continue
				}
				shown++
				if last := len(words) - 1; strings.HasPrefix(words[last], ">") { // its wait may be uncertain
					words = words[:last]
				}
				if err := sameAwaiting(withoutWaiter(th.Frames), words[1:], false); err != nil {
					t.Errorf("%s: %v\n%s", words[0], err, asyncText(th.Frames))
				}
			}
		}
		t.Logf("%d chains shown, %d not", shown, without)
		if shown < without {
			t.Errorf("only %d of %d chains are shown", shown, shown+without)
		}
		livetest.EndsWell(t, a)
	})
}

func withoutWaiter(frames []profile.Frame) []profile.Frame {
	return slices.DeleteFunc(slices.Clone(frames), func(f profile.Frame) bool { return f.Waiter != nil })
}

func checkAsyncStacks(t *testing.T, a *testenv.App, snap *profile.Snapshot) {
	t.Helper()
	threads := threadsOf(snap)
	truths := a.Ask("truths")
	if len(truths) < 40 {
		t.Fatalf("only %d chains", len(truths))
	}
	for _, truth := range truths {
		words := strings.Split(truth, "\t")
		th := threads[words[0]]
		if th == nil {
			t.Errorf("no thread %s", words[0])
			continue
		}
		if err := sameAwaiting(th.Frames, words[1:], true); err != nil {
			t.Errorf("%s: %v\nwant %q\n%s", words[0], err, words[1:], asyncText(th.Frames))
		}
	}
}

// sameAwaiting compares the frames that are not on the stack with what a program says: names and lines, of which 0
// is any.
func sameAwaiting(frames []profile.Frame, want []string, lines bool) error {
	n := 0
	for i := range frames {
		f := &frames[i]
		if f.Kind != profile.Async {
			continue
		}
		if n == len(want) {
			return fmt.Errorf("%s as well", f.Short)
		}
		name, line, _ := strings.Cut(want[n], ":")
		if n++; asyncName(f) != name {
			return fmt.Errorf("%s instead of %s", asyncName(f), name)
		}
		if lines && line != "0" && line != "" && (f.Line == nil || strconv.Itoa(f.Line.Line) != line || f.Line.Approximate) {
			return fmt.Errorf("%s: line %+v, want %s", name, f.Line, line)
		}
	}
	if n < len(want) {
		return fmt.Errorf("%s and what is below are missing", want[n])
	}
	return nil
}

// asyncName is the short name of an async method as the program spells it.
func asyncName(f *profile.Frame) string {
	if f.Waiter != nil {
		return ">" + f.Waiter.Name
	}
	name, _, _ := strings.Cut(f.Short, "{async")
	if at := strings.Index(name, "{lambda "); at >= 0 {
		name = name[:at] + "{lambda}"
	}
	return name
}

func asyncText(frames []profile.Frame) string {
	var b strings.Builder
	for i := range frames {
		f := &frames[i]
		fmt.Fprintf(&b, "  %s %s %s", f.Kind, f.Module, f.Display)
		if f.Line != nil {
			fmt.Fprintf(&b, " %d", f.Line.Line)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
