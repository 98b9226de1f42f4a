package record_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
)

// TestLiveHeap records a program that keeps known amounts at known sites and drops the rest: at the
// end exactly the kept objects are alive, by site, although the collector has moved them; and the
// handles are gone afterwards.
func TestLiveHeap(t *testing.T) {
	layer.Each(t)
	testenv.EachRuntime(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "survivors", testenv.Options{Runtime: runtime})
		p := livetest.Open(t, a, clrsnap.Options{})
		before := handles(t, a)
		o := record.Options{
			Live: true, Events: events.Options{Monitor: events.MonitorAllocations, AllocationBytes: 100 << 10},
		}
		most := 0
		r := livetest.RecordWhile(t, p, o, func() {
			a.Ask("fill 30")
			a.Ask("collect")
			most = handles(t, a)
		})
		livetest.CheckLive(t, r, livetest.AskKept(t, a))
		wantNotes(t, r, "were alive at the end: ", "in gen2", "in large", "in pinned",
			"has found the object alive. There were ")
		if moved, of, _ := strings.Cut(a.Ask("moved")[0], " "); moved == "0" || of == "0" {
			t.Errorf("%s of %s objects have moved: this tests nothing", moved, of)
		}
		if most < before+500 {
			t.Errorf("%d handles before, %d while it was recorded", before, most)
		}

		// Collect collects the remaining garbage.
		kept := livetest.AskKept(t, a)
		o.Collect = true
		r = livetest.RecordWhile(t, p, o, func() { a.Ask("fill 15") })
		livetest.CheckLive(t, r, livetest.Since(livetest.AskKept(t, a), kept))
		wantNotes(t, r, "A full garbage collection came before the last look")
		if after := handles(t, a); after > before+50 {
			t.Errorf("%d handles before, %d afterwards", before, after)
		}
		livetest.EndsWell(t, a)
	})
}

// handles is how many handles the collector counts.
func handles(t *testing.T, a *testenv.App) int {
	t.Helper()
	n, err := strconv.Atoi(a.Ask("handles")[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantNotes(t *testing.T, r *profile.Recording, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(strings.Join(r.Notes, "\n"), text) {
			t.Errorf("no note says %q: %q", text, r.Notes)
		}
	}
}

// TestLiveHeapUnproved: without a collection nothing is known to be dead, and everything is marked;
// allocations after the last collection are left out.
func TestLiveHeapUnproved(t *testing.T) {
	layer.Live(t)
	// A budget of 1 GB: no collection comes by itself, but for the large objects.
	a := testenv.Start(t, "survivors", testenv.Options{Env: []string{"DOTNET_GCgen0size=40000000"}})
	p := livetest.Open(t, a, clrsnap.Options{})
	o := record.Options{
		Live: true, Events: events.Options{Monitor: events.MonitorAllocations, AllocationBytes: 100 << 10},
	}
	r := livetest.RecordWhile(t, p, o, func() { a.Ask("small 40") })
	wantNotes(t, r, "There was no garbage collection, so no object is known to be dead")
	for n := range r.Samples {
		if s := &r.Samples[n]; s.Mode == profile.Live &&
			!strings.HasSuffix(r.Function(s.Node).Display, " (not collected yet)") {
			t.Fatalf("%s is not marked", r.Function(s.Node).Display)
		}
	}
	if r.Weight(profile.Live) == 0 || r.Weight(profile.Live) != r.Weight(profile.Alloc) {
		t.Errorf("%d bytes are alive of %d", r.Weight(profile.Live), r.Weight(profile.Alloc))
	}
	r = livetest.RecordWhile(t, p, o, func() {
		a.Ask("small 40")
		a.Ask("collect")
		a.Ask("small 40")
	})
	wantNotes(t, r, "allocated after the last garbage collection are left out")
	if w := r.Weight(profile.Live); w > r.Weight(profile.Alloc)/20 {
		t.Errorf("%d bytes are alive of %d", w, r.Weight(profile.Alloc))
	}
	livetest.EndsWell(t, a)
}

// TestLiveHeapOfCommand: a recording of an ended program has the objects alive at the last look at its
// heap. Objects are followed, too, if the runtime reports every object.
func TestLiveHeapOfCommand(t *testing.T) {
	layer.Live(t)
	kit := testenv.Kit(t)
	for _, o := range []events.Options{{AllocationBytes: 100 << 10}, {AllocationBytes: 20 << 10, EveryObject: true}} {
		o.Monitor = events.MonitorAllocations
		args := []string{kit.Host(testenv.DefaultRuntime), testenv.Build(t, "survivors"), "--fill", "20", "--stdin"}
		c := livetest.RecordCommand(t, args, clrsnap.Options{}, record.Options{
			Live: true, Events: o, Duration: time.Minute,
		})
		r := c.Good(t)
		wantNotes(t, r, "The program has ended: ")
		all, alive := r.Weight(profile.Alloc), r.Weight(profile.Live)
		if m, _ := r.Mode(profile.Live); alive == 0 || alive >= all || m.Lost > 0 {
			t.Errorf("%d bytes are alive of %d, and %d objects were not followed", alive, all, m.Lost)
		}
	}
}
