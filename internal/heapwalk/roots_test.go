package heapwalk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestRoots: a program keeps objects in all possible ways. clrsnap finds the roots and fields that keep the objects:
// live, and in a core dump.
func TestRoots(t *testing.T) { testenv.EachOfKit(t, testRoots) }

func testRoots(t *testing.T, runtime string) {
	a := testenv.Start(t, "keepers", testenv.DumpOptions(t, testenv.DumpGCore, testenv.Options{Runtime: runtime}))
	checkRoots(t, a, livetest.Open(t, a, clrsnap.Options{}))
	core, err := clrsnap.OpenCore(t.Context(), testenv.Dump(t, a, testenv.DumpGCore), clrsnap.CoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	checkRoots(t, a, core)
}

// keepers are how the program keeps its objects: the root, and the fields on the way. In .NET 8 the places of static
// fields of generic classes, and of thread static fields, are unknown.
var keepers = []struct{ class, want, want8 string }{
	{"ByStatic", "static field Shop.Keep.Plain:", ""},
	{"ByStruct", "static field Shop.Keep.Pair: (int, Shop.ByStruct).Item2", ""},
	{"ByGeneric", "static field Shop.Keep<Shop.Order>.Of:", "static field :"},
	{"ByThread", `thread static field Shop.Keep.Own of "keeper":`, "handle (strong): object[]."},
	{"ByLocal", `stack of "keeper" in Shop.Program.Local:`, ""},
	{"ByStrong", "handle (strong):", ""},
	{"ByPinned", "handle (pinned):", ""},
	{"ByTable", "static field Shop.Keep.Keys: System.Collections.Generic.List<object>._items object[]. object⇢", ""},
	{"ByFinalizer", "finalizer queue:", ""},
	{"Order", "static field Shop.Leaks.all: System.Collections.Generic.Dictionary<int, Shop.Order>._entries " +
		"System.Collections.Generic.Dictionary<int, Shop.Order>+Entry[].", ""},
	{"Listener", "static field Shop.Leaks.Raised: System.Action._invocationList object[]. System.Action._target", ""},
	{"Reminder", "static field System.Threading.TimerQueue.<Instances>k__BackingField: " +
		"System.Threading.TimerQueue[]. System.Threading.TimerQueue._longTimers", ""},
	{"Session", "static field Shop.Leaks.cache: Shop.Cache.byKey " +
		"System.Collections.Generic.Dictionary<string, " +
		"System.Collections.Generic.LinkedListNode<Shop.Session>>._entries", ""},
}

// checkRoots compares the paths to the objects with the program's source.
func checkRoots(t *testing.T, a *testenv.App, p *clrsnap.Process) {
	t.Helper()
	h, err := p.Heap(t.Context(),
		clrsnap.HeapOptions{Roots: regexp.MustCompile(`^Shop\.(By[A-Z]\w*|Order|Listener|Reminder|Session)$`)})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(h)
	if h.RootsMoved || len(h.RootsLack) > 0 {
		t.Errorf("moved: %v, lacking: %q", h.RootsMoved, h.RootsLack)
	}
	ways := map[string]map[string]uint64{} // by class: how many objects each path keeps
	for i := range h.Paths {
		x := &h.Paths[i]
		class := strings.TrimPrefix(x.Steps[len(x.Steps)-1].Type, "Shop.")
		if ways[class] == nil {
			ways[class] = map[string]uint64{}
		}
		ways[class][handlers.Replace(wayOf(x))] += x.Objects.Count
	}
	is8 := strings.HasPrefix(p.Info().Runtime.Version, "8.")
	for _, k := range keepers {
		want := k.want
		if is8 && k.want8 != "" {
			want = k.want8
		}
		n := uint64(0)
		for way, objects := range ways[k.class] {
			if strings.HasPrefix(way, want) {
				n += objects
			}
		}
		if all := countOf(a, k.class); n < all-1 || n == 0 { // an object may be on a stack, or the first of a list
			t.Errorf("%d of %d objects of %s are kept by %s; ways: %v", n, all, k.class, want, ways[k.class])
		}
	}
	for class, all := range ways {
		for way, n := range all {
			dead := strings.HasPrefix(way, "unknown") || strings.HasPrefix(way, "circle")
			if weak := class == "ByWeak" || class == "ByLongWeak"; dead != weak && (!weak || n > 1) {
				t.Errorf("%d objects of %s are kept by %s", n, class, way)
			}
		}
	}
}

// TestRootsGrowing: an event of an old object gets a new delegate whenever somebody subscribes. The path to the
// subscribers is found all the same, but for the subscribers of the last moment.
func TestRootsGrowing(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "keepers", testenv.Options{Runtime: runtime, Args: []string{"--leak", "feed"}})
		p := livetest.Open(t, a, clrsnap.Options{})
		looks, told, moved := 0, 0, 0
		few := func() bool { return looks-moved < 5 }
		for on := livetest.GoOn(0, few); on(); looks++ {
			h, err := p.Heap(t.Context(), clrsnap.HeapOptions{Roots: regexp.MustCompile(`^Shop\.Listener$`)})
			if err != nil {
				t.Fatal(err)
			}
			livetest.Unmark(h)
			if h.RootsMoved {
				moved++
				continue
			}
			const way = "static field Shop.Leaks.feed: Shop.Feed.Raised System.Action"
			kept, all := uint64(0), uint64(0)
			for i := range h.Paths {
				if strings.HasPrefix(wayOf(&h.Paths[i]), way) {
					kept += h.Paths[i].Objects.Count
				}
				all += h.Paths[i].Objects.Count
			}
			switch {
			case all < 1000:
				looks-- // too early
			case all-kept <= all/50:
				told++
			default:
				t.Logf("%d of %d", kept, all)
			}
		}
		t.Logf("%d of %d looks; %d beside a collection", told, looks, moved)
		if told < looks-moved-1 || told == 0 {
			t.Errorf("what keeps the subscribers is told in %d of %d looks", told, looks-moved)
		}
		livetest.EndsWell(t, a)
	})
}

// wayOf is a path as text: its root, and its fields.
func wayOf(x *snapshot.HeapPath) string {
	var b strings.Builder
	b.WriteString(string(x.Root))
	switch {
	case x.Root == snapshot.RootStatic || x.Root == snapshot.RootThreadStatic:
		b.WriteString(" " + x.Static)
	case x.Root == snapshot.RootHandle:
		fmt.Fprintf(&b, " (%s)", x.Handle)
	}
	if x.Thread != nil {
		fmt.Fprintf(&b, " of %q", x.Thread.Name)
	}
	if x.Method != "" {
		b.WriteString(" in " + x.Method)
	}
	b.WriteString(":")
	for _, s := range x.Steps[:len(x.Steps)-1] {
		switch {
		case s.Dependent:
			b.WriteString(" " + s.Type + "⇢")
		case s.ByType:
			b.WriteString(" " + s.Type + "⇒")
		case s.Static != "":
			b.WriteString(" " + s.Type + "(" + s.Static + ")")
		default:
			b.WriteString(" " + s.Type + "." + s.Field)
		}
	}
	return b.String()
}

// countOf is how many objects of a class the program keeps.
func countOf(a *testenv.App, class string) uint64 {
	for _, line := range a.Ask("truth") {
		var n uint64
		if rest, ok := strings.CutPrefix(line, "Shop."+class+"\t"); ok {
			fmt.Sscan(rest, &n)
			return n
		}
	}
	return 1
}

// TestRootsWitness: ClrMD finds the same objects kept, by the same kinds of root. ClrMD does not follow dependent
// handles, and takes thread static fields for local variables.
func TestRootsWitness(t *testing.T) {
	testenv.EachOf(t, testenv.AllRuntimes(), func(t *testing.T, runtime string) {
		if !testenv.Ordinary(runtime) {
			t.Skip("SKIPPED, NOTHING WAS TESTED: ClrMD needs a libmscordaccore.so: set CLRSNAP_DOTNET_ROOTS")
		}
		a := testenv.Start(t, "keepers", testenv.Options{Runtime: runtime})
		p := livetest.Open(t, a, clrsnap.Options{})
		for _, k := range keepers {
			checkRootsWitness(t, a, p, "Shop."+k.class)
		}
	})
}

// witnessKinds are ClrMD's names for the roots. Handles keep the arrays that hold static fields.
var witnessKinds = map[snapshot.HeapRoot]string{
	snapshot.RootStatic: "StrongHandle", snapshot.RootStack: "Stack", snapshot.RootThreadStatic: "Stack",
	snapshot.RootFinalizer: "FinalizerQueue", snapshot.RootHandle: "StrongHandle",
}

func checkRootsWitness(t *testing.T, a *testenv.App, p *clrsnap.Process, class string) {
	t.Helper()
	out, err := testenv.ClrMD(t, "roots", a, class).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{}
	for line := range bytes.Lines(out) {
		var row struct{ Root string }
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		want[row.Root]++
	}
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{Roots: regexp.MustCompile("^" + regexp.QuoteMeta(class) + "$")})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(h)
	got := map[string]uint64{}
	for i := range h.Paths {
		x := &h.Paths[i]
		kind := witnessKinds[x.Root]
		if x.Handle == snapshot.HandlePinned {
			kind = "PinnedHandle"
		}
		if slices.ContainsFunc(x.Steps, func(s snapshot.HeapStep) bool { return s.Dependent }) {
			kind = ""
		}
		got[kind] += x.Objects.Count
	}
	if n := countOf(a, strings.TrimPrefix(class, "Shop.")); got["FinalizerQueue"] == n && want["FinalizerQueue"] < n {
		t.Logf("%s: the witness lacks some of the %d that wait for their finalizers", class, n)
		return
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: kept by %v, and the witness says %v", class, got, want)
	}
}
