package heapwalk_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/heapwalk"
	"clrsnap/internal/moments"
	"clrsnap/internal/target/recorded"
	"clrsnap/snapshot"
)

// TestRecordedHeap: each class has as many objects and bytes as the recorded program says, and all objects together as
// many bytes as the collector said.
func TestRecordedHeap(t *testing.T) {
	moments.Each(t, "heap", func(t *testing.T, m *recorded.Moment) {
		h := moments.At[*snapshot.Heap](t, m, moments.Heap)
		got, classes, total := amountsOf(h), 0, -1.0
		for _, line := range m.Truths {
			f := strings.Split(line, "\t")
			if len(f) != 3 {
				if total < 0 {
					total, _ = strconv.ParseFloat(line, 64)
				}
				continue
			}
			classes++
			if have := fmt.Sprintf("%s\t%d\t%d", f[0], got[f[0]].Count, got[f[0]].Bytes); have != line {
				t.Errorf("%q, and the program says %q", have, line)
			}
		}
		frozen := h.Generation(snapshot.FrozenObjects).Objects.Bytes // the collector does not count frozen objects
		if mine := float64(h.Objects().Bytes - frozen); math.Abs(mine-total) > total/100 || classes < 12 {
			t.Errorf("%.0f bytes, and the collector says %.0f; %d classes", mine, total, classes)
		}
		if h.ConsistentShare != 1 || h.Partial || h.Generation(snapshot.LargeObjects).Objects.Count < 7 {
			t.Errorf("%v of the heap is consistent", h.ConsistentShare)
		}
		owners := map[snapshot.Origin]bool{}
		for i := range h.Types {
			owners[h.Types[i].Origin()] = true
		}
		if len(owners) < 2 {
			t.Errorf("owners %v", owners)
		}
	})
}

func amountsOf(h *snapshot.Heap) map[string]snapshot.HeapAmount {
	out := map[string]snapshot.HeapAmount{}
	for i := range h.Types {
		a := out[h.Types[i].Name]
		a.Add(h.Types[i].HeapAmount)
		out[h.Types[i].Name] = a
	}
	return out
}

// TestRecordedObjects: single objects and texts of a recorded heap.
func TestRecordedObjects(t *testing.T) {
	moments.Each(t, "heap", func(t *testing.T, m *recorded.Moment) {
		h := moments.At[*snapshot.Heap](t, m, moments.Objects)
		if len(h.Instances) != 10 || h.Matching != amountsOf(h)["Shop.Colour[]"] {
			t.Errorf("%d instances of %+v", len(h.Instances), h.Matching)
		}
		for i, x := range h.Instances { // arrays of 99 elements and fewer, and 24 bytes besides
			if want := uint64(24+99-i+7) &^ 7; x.Bytes != want || x.Type != "Shop.Colour[]" {
				t.Errorf("instance %d is %+v, not of %d bytes", i, x, want)
			}
		}
		if !slices.ContainsFunc(h.Strings, func(s snapshot.HeapString) bool { return s.Text == "literal" }) {
			t.Error("the texts lack a literal")
		}
	})
}

// TestRecordedRetained: each listener of the recorded program has an array of 1,000 bytes, which nothing else keeps.
func TestRecordedRetained(t *testing.T) {
	moments.Each(t, "heap", func(t *testing.T, m *recorded.Moment) {
		h := moments.At[*snapshot.Heap](t, m, moments.Retained)
		if h.Graph == nil || len(h.Dominators) == 0 || !h.HasRetained || len(h.RootsLack) > 0 {
			t.Fatalf("graph %v, %d keepers, roots lack %q", h.Graph != nil, len(h.Dominators), h.RootsLack)
		}
		i := slices.IndexFunc(h.Types, func(x snapshot.HeapType) bool { return x.Name == "Shop.Listener" })
		if i < 0 {
			t.Fatal("no listeners")
		}
		if x := &h.Types[i]; x.Count != 300 || x.Retained != x.Bytes+300*1024 {
			t.Errorf("%d listeners of %d bytes retain %d", x.Count, x.Bytes, x.Retained)
		}
		reached := 0
		for range h.Graph.Objects {
			reached++
		}
		if all := int(h.Objects().Count); reached != h.Graph.Count || reached > all || reached < all/2 {
			t.Errorf("the graph has %d objects, said to be %d, of %d", reached, h.Graph.Count, all)
		}
	})
}

// TestRecordedRoots: how the objects of a recorded program are kept. The names of most classes say how.
func TestRecordedRoots(t *testing.T) {
	want := map[string]string{
		"ByStatic":    "static field Shop.Keep.Plain",
		"ByStruct":    "static field Shop.Keep.Pair",
		"ByGeneric":   "static field Shop.Keep<Shop.Order>.Of",
		"ByThread":    "thread static field Shop.Keep.Own",
		"ByStrong":    "handle (strong)",
		"ByPinned":    "handle (pinned)",
		"ByTable":     "static field Shop.Keep.Keys",
		"ByFinalizer": "finalizer queue",
		"Order":       "static field Shop.Leaks.all",
		"Listener":    "static field Shop.Leaks.Raised",
		"Session":     "static field Shop.Leaks.cache",
	}
	moments.Each(t, "keepers", func(t *testing.T, m *recorded.Moment) {
		h := moments.At[*snapshot.Heap](t, m, moments.Roots)
		if h.RootsMoved || len(h.RootsLack) > 0 {
			t.Errorf("moved: %v, lacking: %q", h.RootsMoved, h.RootsLack)
		}
		truths := map[string]uint64{}
		for _, line := range m.Truths {
			f := strings.Split(line, "\t")
			truths[strings.TrimPrefix(f[0], "Shop.")], _ = strconv.ParseUint(f[1], 10, 64)
		}
		kept := map[string]map[string]uint64{}
		for i := range h.Paths {
			x := &h.Paths[i]
			class := strings.TrimPrefix(x.Steps[len(x.Steps)-1].Type, "Shop.")
			if kept[class] == nil {
				kept[class] = map[string]uint64{}
			}
			kept[class][x.Beginning()] += x.Objects.Count
		}
		for class, beginning := range want {
			all := max(truths[class], 1)
			n := uint64(0)
			for by, objects := range kept[class] {
				if strings.HasPrefix(by, beginning) {
					n += objects
				}
			}
			if n < all-1 || n == 0 { // an object may be on a stack, or the first of a list
				t.Errorf("%d of %d objects of %s are kept by %s; all: %v", n, all, class, beginning, kept[class])
			}
		}
		for _, weak := range []string{"ByWeak", "ByLongWeak"} {
			for by, n := range kept[weak] {
				if n > 1 && !strings.HasPrefix(by, "nothing known") {
					t.Errorf("%d objects of %s are kept by %s", n, weak, by)
				}
			}
		}
	})
}

// TestRecordedPiles: the large collections of a recorded program, and the dominator of the largest. An event has 300
// handlers.
func TestRecordedPiles(t *testing.T) {
	moments.Each(t, "heap", func(t *testing.T, m *recorded.Moment) {
		result := moments.At[[]any](t, m, moments.Piles)
		piles := result[0].([]heapwalk.Pile)
		i := slices.IndexFunc(piles, func(p heapwalk.Pile) bool { return p.Kind == heapwalk.Event })
		if i < 0 || piles[i].Count != 300 || piles[i].Element != "Shop.Listener" || piles[i].Type != "System.Action" {
			t.Errorf("%+v", piles)
		}
		if keeper := result[1].(*snapshot.HeapPath); keeper == nil || result[2].(int) == 0 {
			t.Errorf("the largest is kept by %+v", keeper)
		}
	})
}

// TestRecordedContexts: what keeps the unloaded load contexts of a recorded program.
func TestRecordedContexts(t *testing.T) {
	want := []string{
		"handle (strong)", "thread static field Contexts.Program.own", "static field Contexts.Program.key",
		"static field Contexts.Program.list", "static field Contexts.Program.array", "code that thread",
	}
	moments.Each(t, "contexts", func(t *testing.T, m *recorded.Moment) {
		h := moments.At[*snapshot.Heap](t, m, moments.Contexts)
		kept := map[string]map[string]uint64{}
		for i := range h.Paths {
			x := &h.Paths[i]
			class := x.Steps[len(x.Steps)-1].Type
			if kept[class] == nil {
				kept[class] = map[string]uint64{}
			}
			kept[class][x.Beginning()] += x.Objects.Count
		}
		for class, by := range kept {
			for _, beginning := range want {
				n := uint64(0)
				for way, objects := range by {
					if strings.HasPrefix(way, beginning) {
						n += objects
					}
				}
				if n != 1 {
					t.Errorf("%s keeps %d of %s, want 1; all: %v", beginning, n, class, by)
				}
			}
		}
		contexts := map[string]bool{}
		for i := range h.Types {
			if h.Types[i].Name == "Contexts.Plugin" {
				contexts[h.Types[i].Context] = true
			}
		}
		names := slices.Sorted(maps.Keys(contexts))
		if len(kept) != 2 || !slices.Equal(names, []string{"handle", "table", "threadstatic"}) {
			t.Errorf("kept %v, contexts %v", kept, names)
		}
	})
}
