package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// blockedWaits sums up a mode's waits by the waiting method of the program.
func blockedWaits(r *profile.Recording, m profile.Mode) map[string]map[profile.WaitingFor]profile.Amount {
	out := map[string]map[profile.WaitingFor]profile.Amount{}
	for what, samples := range r.WaitSamples() {
		for _, i := range samples {
			x := &r.Samples[i]
			if x.Mode != m {
				continue
			}
			stack := names(r, x.Node)
			at := slices.IndexFunc(stack, func(f string) bool { return strings.HasPrefix(f, "Blocked.Program.") })
			if at < 0 {
				stack, at = append(stack, ""), len(stack)
			}
			if out[stack[at]] == nil {
				out[stack[at]] = map[profile.WaitingFor]profile.Amount{}
			}
			sum := out[stack[at]][what]
			sum.Add(profile.Amount{Weight: x.Weight, Events: x.Events, Samples: int(x.Count)})
			out[stack[at]][what] = sum
		}
	}
	return out
}

// withoutFirst leaves out the wait that went on when the recording began: its lock is not known.
func withoutFirst(got map[profile.WaitingFor]profile.Amount,
	want profile.WaitingFor) map[profile.WaitingFor]profile.Amount {
	for _, kind := range []snapshot.WaitKind{want.Kind, snapshot.WaitRuntime} {
		unknown := profile.WaitingFor{Kind: kind}
		if want.Type != "" && got[unknown].Events == 1 {
			delete(got, unknown)
		}
	}
	return got
}

// wantedWait is the wait of a method according to the program.
func wantedWait(x *testenv.Truth) profile.WaitingFor {
	want := profile.WaitingFor{Kind: snapshot.WaitKind(x.Kind)}
	if x.Type != "-" {
		want.Type, want.Module = x.Type, "blocked"
	}
	if want.Kind == snapshot.LockEnter {
		want.Module = "System.Private.CoreLib"
	}
	return want
}

// longWaits are so long that threads block for most of the time even on a busy machine: first they
// spin and yield. Beside four busy programs on two CPUs, spinning and yielding took 350 ms.
var longWaits = []string{"--ms", "1000"}

// TestWaitEvents: every wait of the program is recorded, with its primitive, the class of its object
// where the runtime knows the class, and its duration.
func TestWaitEvents(t *testing.T) { testenv.EachVersion(t, testWaitEvents) }

func testWaitEvents(t *testing.T, runtime string) {
	a := testenv.Start(t, "blocked", testenv.Options{Runtime: runtime, Args: longWaits})
	p := livetest.Open(t, a, clrsnap.Options{})
	o := record.Options{Events: events.Options{Monitor: events.MonitorWaits, WaitMin: time.Millisecond}}
	if testenv.Framework(runtime) == "net8" {
		if _, err := record.Record(context.Background(), p, o); !errors.Is(err, events.ErrNoWaits) {
			t.Errorf("waits of %s: %v", runtime, err)
		}
		livetest.EndsWell(t, a)
		return
	}
	var inside, around []testenv.Truth
	var got map[string]map[profile.WaitingFor]profile.Amount
	testenv.UntilSeen(t, func() string { // a thread that only spins through its waits has no event
		var r *profile.Recording
		r, inside, around = recordWaits(t, a, p, o)
		got = blockedWaits(r, profile.Waits)
		for i := range inside {
			x := &inside[i]
			want, reported := reportedWait(x, runtime)
			got[x.Method] = withoutFirst(got[x.Method], want)
			if reported && len(got[x.Method]) == 0 {
				return "an event of " + x.Method
			}
		}
		return ""
	})
	for i, x := range inside {
		want, reported := reportedWait(&x, runtime)
		if !reported {
			if len(got[x.Method]) > 0 {
				t.Errorf("%s: %v, want nothing", x.Method, got[x.Method])
			}
			continue
		}
		one := got[x.Method][want]
		if len(got[x.Method]) != 1 {
			t.Errorf("%s: %v, want %v alone", x.Method, got[x.Method], want)
			continue
		}
		least := 0.0 // the program also counts free locks, and spinning before a block, however long on a busy machine
		switch want.Kind {
		case snapshot.HandleOne, snapshot.HandleAny, snapshot.HandleAll, snapshot.MonitorWait, snapshot.ThreadJoin:
			least = 0.8
		}
		most, whole := 1.1*float64(around[i].Amount)+float64(around[i].Amount/around[i].Count), float64(x.Amount)
		sum, count := float64(one.Weight), float64(one.Events)
		if sum > most || sum <= 0 || sum < least*whole || count < least*float64(x.Count) {
			t.Errorf("%s: %v; meanwhile it had %d waits of %v, and with those before and after %d of %v", x.Method, one,
				x.Count, time.Duration(x.Amount), around[i].Count, time.Duration(around[i].Amount))
		}
	}
	t.Log(got)
	livetest.EndsWell(t, a)
}

// reportedWait is the wait of a method in the runtime's events, and whether the runtime reports the wait at all.
func reportedWait(x *testenv.Truth, runtime string) (want profile.WaitingFor, reported bool) {
	want = wantedWait(x)
	switch net := testenv.Framework(runtime); {
	case want.Kind == snapshot.ThreadSleep:
		return want, false
	case want.Kind == snapshot.ThreadJoin && net == "net9":
		want.Kind = snapshot.WaitRuntime // here Thread.Join is no method but a function of the runtime
	case want.Kind == snapshot.ThreadJoin && net == "net11":
		return want, false // the runtime does not report joins any more
	}
	return want, true
}

// recordWaits records the program until each of its methods has waited twice from beginning to end.
// inside is the program's count during these waits, and around its count from before the recording
// until after it.
func recordWaits(t *testing.T, a *testenv.App, p *clrsnap.Process, o record.Options) (r *profile.Recording,
	inside, around []testenv.Truth) {
	t.Helper()
	begun, ended := make(chan struct{}), make(chan error, 1)
	o.Progress = func(record.Progress) {
		if begun != nil {
			close(begun)
			begun = nil
		}
	}
	_, before := a.AskTruths()
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Hang)
	defer cancel()
	started := begun
	go func() {
		var err error
		r, err = record.Record(ctx, p, o)
		ended <- err
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	// await waits until each method has waited so many times.
	await := func(times int64) (waited []testenv.Truth) {
		_, from := a.AskTruths()
		testenv.UntilSeen(t, func() string {
			_, now := a.AskTruths()
			waited = since(now, from)
			if i := slices.IndexFunc(waited, func(x testenv.Truth) bool { return x.Count < times }); i >= 0 {
				return fmt.Sprintf("%d waits: %+v", times, waited[i])
			}
			return ""
		})
		return waited
	}
	await(1) // the first wait may have begun before the recording
	inside = await(2)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	_, around = a.AskTruths()
	return r, inside, since(around, before)
}

// since is the count since then.
func since(now, then []testenv.Truth) []testenv.Truth {
	out := slices.Clone(now)
	for i := range out {
		out[i].Count -= then[i].Count
		out[i].Amount -= then[i].Amount
	}
	return out
}

// TestWaitWall: samples of the wall clock name the awaited object as well, on every runtime. For
// monitors they also name the class of the object.
func TestWaitWall(t *testing.T) { testenv.EachVersion(t, testWaitWall) }

// wallWait is the wait of a method in samples.
func wallWait(x *testenv.Truth, net string) profile.WaitingFor {
	want := profile.WaitingFor{Kind: snapshot.WaitKind(x.Kind)}
	switch want.Kind {
	case snapshot.MonitorEnter, snapshot.MonitorWait:
		want.Type = x.Type
	case snapshot.LockEnter:
		if net == "net8" { // .NET 8 has no Lock, and the program has its own
			want = profile.WaitingFor{Kind: snapshot.MonitorEnter, Type: "Common.MonitorLock"}
		}
	case snapshot.ThreadJoin:
		if net == "net8" || net == "net9" {
			want.Kind = snapshot.WaitRuntime // no method, but a function of the runtime
		}
	}
	return want
}

func testWaitWall(t *testing.T, runtime string) {
	a := testenv.Start(t, "blocked", testenv.Options{Runtime: runtime, Args: []string{"--ms", "5000"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	_, truths := a.AskTruths()
	got, net := map[string]map[profile.WaitingFor]profile.Amount{}, testenv.Framework(runtime)
	testenv.UntilSeen(t, func() string {
		r := livetest.Recorded(t, p, record.Options{Duration: 2 * time.Second, Modes: []profile.Mode{profile.Wall}})
		for method, sums := range blockedWaits(r, profile.Wall) {
			if got[method] == nil {
				got[method] = map[profile.WaitingFor]profile.Amount{}
			}
			for what, sum := range sums {
				sum.Add(got[method][what])
				got[method][what] = sum
			}
		}
		for i := range truths {
			x := &truths[i]
			want, all := wallWait(x, net), int64(0)
			for _, sum := range got[x.Method] {
				all += sum.Weight
			}
			// The rest is the program's work before and after the wait. How long the program spins first is up to
			// the machine.
			if sum := got[x.Method][want].Weight; sum < all*8/10 || sum == 0 {
				return fmt.Sprintf("%s: %v, want %v", x.Method, got[x.Method], want)
			}
		}
		return ""
	})
	for what := range got["Blocked.Program.OnHandle"] {
		if what.Kind == snapshot.WaitIdle {
			t.Errorf("a thread of the program is idle: %v", got)
		}
	}
	livetest.EndsWell(t, a)
}
