package record_test

import (
	"maps"
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

// TestRecordHotWaits: the kinds of waits in optimised code, and the awaited objects: where frames only
// show a part of the inlined methods, the thread's own objects tell.
func TestRecordHotWaits(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "hotwaits", testenv.Options{
			Runtime: runtime, Args: []string{"--short", "--ms", "5", "--exchange"},
		})
		p := livetest.Open(t, a, clrsnap.Options{})
		want := map[string]profile.WaitingFor{
			"permit":   {Kind: snapshot.SemaphoreWait},
			"permits":  {Kind: snapshot.SemaphoreWait},
			"monitor":  {Kind: snapshot.MonitorWait, Type: "object", Module: ""},
			"own":      {Kind: snapshot.MonitorWait, Type: "HotWaits.Shop", Module: ""},
			"auto":     {Kind: snapshot.HandleOne},
			"exchange": {Kind: snapshot.HandleOne},
			"sleeps":   {Kind: snapshot.ThreadSleep},
			"slim":     {Kind: snapshot.EventWait},
			"lock":     {Kind: snapshot.LockEnter},
		}
		seen, known := map[string]map[profile.WaitingFor]int{}, 0
		testenv.UntilSeen(t, func() string { // beside others some spin on, and do not come to wait
			r := livetest.Recorded(t, p, record.Options{
				Modes: []profile.Mode{profile.Wall}, MaxCPU: 2, Duration: 2 * time.Second,
			})
			for what, samples := range r.WaitSamples() {
				for _, i := range samples {
					name := r.Threads[r.Samples[i].Thread].Name
					if seen[name] == nil {
						seen[name] = map[profile.WaitingFor]int{}
					}
					seen[name][what]++
				}
			}
			for name := range want {
				if len(seen[name]) == 0 {
					return "a wait of " + name
				}
			}
			return ""
		})
		for name, want := range want {
			all := 0
			for _, n := range seen[name] {
				all += n
			}
			none := seen[name][profile.WaitingFor{}] + seen[name][profile.WaitingFor{Kind: snapshot.WaitRuntime}]
			switch got := seen[name][want]; {
			case got+none <= all/2: // the others spin before they wait, or have just woken
				t.Errorf("%s: %d of %d samples wait for %v: %v", name, got, all, &want, seen[name])
			case got > all/2:
				known++
			}
		}
		if known < 6 {
			t.Errorf("of %d ways to wait the kind is known", known)
		}
		t.Log(slices.Sorted(maps.Keys(seen)))
		livetest.EndsWell(t, a)
	})
}

// TestRecordHotEvent: a thread waits for a ManualResetEventSlim in code with an inlined Wait. Only the
// Lock that blocks the thread tells: it is no monitor.
func TestRecordHotEvent(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "hotwait", testenv.Options{Runtime: runtime})
		p := livetest.Open(t, a, clrsnap.Options{})
		r := livetest.Recorded(t, p, record.Options{Modes: []profile.Mode{profile.Wall}, Duration: time.Second})
		seen, all := map[profile.WaitingFor]int{}, 0
		for what, samples := range r.WaitSamples() {
			for _, i := range samples {
				if r.Threads[r.Samples[i].Thread].Name == "hot" {
					seen[what] += int(r.Samples[i].Count)
					all += int(r.Samples[i].Count)
				}
			}
		}
		if got := seen[profile.WaitingFor{Kind: snapshot.EventWait}]; all == 0 || got*4 < all*3 {
			t.Errorf("of %d samples %d wait for an event: %v", all, got, seen)
		}
		livetest.EndsWell(t, a)
	})
}

// TestHotWaitEvents: the kinds of the waits that the runtime reports from optimised code.
func TestHotWaitEvents(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "hotwaits", testenv.Options{Runtime: runtime, Args: []string{"--short", "--ms", "5"}})
		want := map[string]snapshot.WaitKind{} // by thread
		for _, line := range a.Ask("waits") {
			if words := strings.Split(line, "\t"); words[0] == "wait" {
				want[strings.TrimPrefix(words[1], "thread=")] = snapshot.WaitKind(strings.TrimPrefix(words[2], "kind="))
			}
		}
		delete(want, "sleeps")
		if testenv.Framework(runtime) == "net11" {
			delete(want, "join") // the runtime does not report joins any more
		}
		p := livetest.Open(t, a, clrsnap.Options{})
		seen := map[string]int{}
		few := func() bool { return len(seen) < len(want) }
		for on := livetest.GoOn(0, few); len(seen) == 0 || on(); {
			r := livetest.Recorded(t, p, record.Options{
				Events:   events.Options{Monitor: events.MonitorWaits, WaitMin: time.Millisecond},
				Duration: 500 * time.Millisecond,
			})
			for what, samples := range r.WaitSamples() {
				for _, i := range samples {
					name := r.Threads[r.Samples[i].Thread].Name
					kind, ours := want[name]
					// Before .NET 11 the wait has no frame, and nothing else tells the kind, if WaitOne or Join was
					// inlined.
					untold := testenv.Framework(runtime) != "net11" && what.Kind == snapshot.WaitRuntime &&
						(kind == snapshot.HandleOne || kind == snapshot.ThreadJoin)
					if ours && what.Kind != kind && !untold {
						t.Fatalf("%s: %v: %q", name, &what, names(r, r.Samples[i].Node))
					}
					if ours {
						seen[name]++
					}
				}
			}
		}
		if t.Log(seen); few() {
			t.Errorf("waits of %d of %d threads", len(seen), len(want))
		}
		livetest.EndsWell(t, a)
	})
}
