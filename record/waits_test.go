package record_test

import (
	"context"
	"errors"
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
)

// blockedWaits sums up a mode's waits by the method of the program that waits.
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

// withoutFirst leaves out the wait for a lock that went on when the recording began, and whose lock is not known.
func withoutFirst(got map[profile.WaitingFor]profile.Amount,
	want profile.WaitingFor) map[profile.WaitingFor]profile.Amount {
	for _, kind := range []profile.WaitKind{want.Kind, profile.WaitRuntime} {
		unknown := profile.WaitingFor{Kind: kind}
		if want.Type != "" && got[unknown].Events == 1 {
			delete(got, unknown)
		}
	}
	return got
}

// wantedWait is what the program says that a method waits for.
func wantedWait(x *testenv.Truth) profile.WaitingFor {
	want := profile.WaitingFor{Kind: profile.WaitKind(x.Kind)}
	if x.Type != "-" {
		want.Type, want.Module = x.Type, "blocked"
	}
	if want.Kind == profile.LockEnter {
		want.Module = "System.Private.CoreLib"
	}
	return want
}

// longWaits are so long that threads block in them on a busy machine, too: first they spin, and some yield.
var longWaits = []string{"--ms", "100"}

// TestWaitEvents: every wait of the program is recorded, with its primitive, the class of its object where the runtime
// knows it, and its duration.
func TestWaitEvents(t *testing.T) { testenv.EachVersion(t, testWaitEvents) }

func testWaitEvents(t *testing.T, runtime string) {
	a := testenv.Start(t, "blocked", testenv.Options{Runtime: runtime, Args: longWaits})
	p := livetest.Open(t, a, clrsnap.Options{})
	o := record.Options{Duration: 2 * time.Second, Events: events.Options{
		Monitor: events.MonitorWaits, WaitMin: time.Millisecond,
	}}
	if testenv.Framework(runtime) == "net8" {
		if _, err := record.Record(context.Background(), p, o); !errors.Is(err, events.ErrNoWaits) {
			t.Errorf("waits of %s: %v", runtime, err)
		}
		livetest.EndsWell(t, a)
		return
	}
	from, before := a.AskTruths()
	r := livetest.Recorded(t, p, o)
	to, after := a.AskTruths()
	got := blockedWaits(r, profile.Waits)
	for i, x := range after {
		want := wantedWait(&x)
		if want.Kind == profile.ThreadSleep {
			if len(got[x.Method]) > 0 {
				t.Errorf("%s sleeps, and has waits %v", x.Method, got[x.Method])
			}
			continue
		}
		if want.Kind == profile.ThreadJoin {
			switch testenv.Framework(runtime) {
			case "net9":
				want.Kind = profile.WaitRuntime // Thread.Join is no method but a function of the runtime there
			case "net11":
				if len(got[x.Method]) > 0 { // the runtime does not report it any more
					t.Errorf("%s: %v, want nothing", x.Method, got[x.Method])
				}
				continue
			}
		}
		got[x.Method] = withoutFirst(got[x.Method], want)
		one := got[x.Method][want]
		if len(got[x.Method]) != 1 {
			t.Errorf("%s: %v, want %v alone", x.Method, got[x.Method], want)
			continue
		}
		share := float64(r.Duration) / float64(to-from)
		count, ns := share*float64(x.Count-before[i].Count), share*float64(x.Amount-before[i].Amount)
		least := 0.1 // the program also counts locks that are free, and how long others spin before they block
		switch want.Kind {
		case profile.HandleOne, profile.HandleAny, profile.HandleAll, profile.MonitorWait, profile.ThreadJoin:
			least = 0.8
		}
		if sum := float64(one.Weight); sum > 1.1*ns || sum < least*ns || float64(one.Events) < least*count {
			t.Errorf("%s: %v, %.0f waits of %.1f s are true", x.Method, one, count, ns/1e9)
		}
	}
	t.Log(got)
	livetest.EndsWell(t, a)
}

// TestWaitWall: samples of the wall clock say what is waited for as well, on every runtime. Of monitors they also say
// of which class the object is.
func TestWaitWall(t *testing.T) { testenv.EachVersion(t, testWaitWall) }

func testWaitWall(t *testing.T, runtime string) {
	a := testenv.Start(t, "blocked", testenv.Options{Runtime: runtime, Args: longWaits})
	p := livetest.Open(t, a, clrsnap.Options{})
	r := livetest.Recorded(t, p, record.Options{Duration: 2 * time.Second, Modes: []profile.Mode{profile.Wall}})
	_, truths := a.AskTruths()
	got, net := blockedWaits(r, profile.Wall), testenv.Framework(runtime)
	for i := range truths {
		x := &truths[i]
		want := profile.WaitingFor{Kind: profile.WaitKind(x.Kind)}
		switch want.Kind {
		case profile.MonitorEnter, profile.MonitorWait:
			want.Type = x.Type
		case profile.LockEnter:
			if net == "net8" { // it has no such lock, and the program its own one
				want = profile.WaitingFor{Kind: profile.MonitorEnter, Type: "Common.MonitorLock"}
			}
		case profile.ThreadJoin:
			if net == "net8" || net == "net9" {
				want.Kind = profile.WaitRuntime // no method, but a function of the runtime
			}
		}
		all := int64(0)
		for _, sum := range got[x.Method] {
			all += sum.Weight
		}
		// The rest is what the program does before and after the wait. How long it spins first is up to the machine.
		if sum := got[x.Method][want].Weight; sum < all*8/10 || sum == 0 {
			t.Errorf("%s: %v, want %v", x.Method, got[x.Method], want)
		}
	}
	for what := range got["Blocked.Program.OnHandle"] {
		if what.Kind == profile.WaitIdle {
			t.Errorf("a thread of the program is idle: %v", got)
		}
	}
	livetest.EndsWell(t, a)
}
