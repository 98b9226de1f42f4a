package heapwalk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestHeap: each class has as many objects and bytes as the program says. All objects together have as many bytes as
// the collector itself says. Holes are free space.
func TestHeap(t *testing.T) { testenv.EachOfKit(t, testHeap) }

func testHeap(t *testing.T, runtime string) {
	a := testenv.Start(t, "heap", testenv.Options{Runtime: runtime})
	p := livetest.Open(t, a, clrsnap.Options{})
	checkHeap(t, a, takeWhole(t, p))
	before := takeWhole(t, p).Free()
	a.Ask("holes")
	h := takeWhole(t, p)
	checkHeap(t, a, h)
	if grown := int64(h.Free()) - int64(before); grown < 1_900_000 {
		t.Errorf("20 arrays are free space now: %d bytes more than before", grown)
	}
	checkObjects(t, p)
	checkLeak(t, a, p)
	livetest.EndsWell(t, a)
}

// TestHeapServer: the collector of servers has several heaps.
func TestHeapServer(t *testing.T) { testenv.EachVersion(t, testHeapServer) }

func testHeapServer(t *testing.T, rt string) {
	a := testenv.Start(t, "heap", testenv.Options{Runtime: rt, Env: serverEnv})
	h := takeWhole(t, livetest.Open(t, a, clrsnap.Options{}))
	checkHeap(t, a, h)
	if n := h.Heaps(); n != min(runtime.NumCPU(), 4) {
		t.Errorf("%d heaps", n)
	}
	livetest.EndsWell(t, a)
}

var serverEnv = []string{"DOTNET_gcServer=1", "DOTNET_GCHeapCount=4"}

// TestHeapSegments: the stand-alone collector clrgc has segments instead of regions. Generations share segments.
func TestHeapSegments(t *testing.T) {
	testenv.EachOf(t, testenv.AllRuntimes(), func(t *testing.T, runtime string) {
		if !testenv.Ordinary(runtime) {
			t.Skip("the collector is a file beside libcoreclr.so")
		}
		a := testenv.Start(t, "heap", testenv.Options{Runtime: runtime, Env: []string{"DOTNET_GCName=libclrgc.so"}})
		h := takeWhole(t, livetest.Open(t, a, clrsnap.Options{}))
		checkTypes(t, a, h) // this collector's own total counts some objects twice
		if n := h.Generation(snapshot.Gen0).Regions; n != 1 {
			t.Errorf("%d segments of the youngest generation", n)
		}
		checkWitness(t, a)
		livetest.EndsWell(t, a)
	})
}

// collectors are ways to have the memory of a program collected, by variables of its environment.
var collectors = map[string][]string{
	"not in the background": {"DOTNET_gcConcurrent=0"},
	"server":                {"DOTNET_gcServer=1"}, // since .NET 9 with as many heaps as necessary
	"server, all heaps":     {"DOTNET_gcServer=1", "DOTNET_GCDynamicAdaptationMode=0"},
	"clrgc":                 {"DOTNET_GCName=libclrgc.so"},
	"clrgc, server":         {"DOTNET_GCName=libclrgc.so", "DOTNET_gcServer=1"},
	"clrgcexp":              {"DOTNET_GCName=libclrgcexp.so"},
	"clrgcexp, server":      {"DOTNET_GCName=libclrgcexp.so", "DOTNET_gcServer=1"},
}

// TestCollectors: each collector keeps the objects that the program counts. clrsnap finds how other objects are kept:
// by static fields, by thread static fields, by handles, in the queue of finalizers.
func TestCollectors(t *testing.T) {
	testenv.EachOf(t, testenv.AllRuntimes(), func(t *testing.T, runtime string) {
		if !testenv.Ordinary(runtime) {
			t.Skip("collectors are files beside libcoreclr.so")
		}
		for name, env := range collectors {
			t.Run(name, func(t *testing.T) {
				if strings.HasPrefix(name, "clrgcexp") && testenv.Framework(runtime) == "net8" {
					t.Skip("it has none")
				}
				a := testenv.Start(t, "heap", testenv.Options{Runtime: runtime, Env: env})
				checkTypes(t, a, takeWhole(t, livetest.Open(t, a, clrsnap.Options{})))
				livetest.EndsWell(t, a)
				if testenv.Framework(runtime) != "net8" {
					a = testenv.Start(t, "keepers", testenv.Options{Runtime: runtime, Env: env})
					checkRoots(t, a, livetest.Open(t, a, clrsnap.Options{}))
				}
			})
		}
	})
}

// TestHeapWitness: ClrMD counts the same objects of each type and the same free space in several heaps with regions.
func TestHeapWitness(t *testing.T) {
	testenv.EachOf(t, testenv.AllRuntimes(), func(t *testing.T, runtime string) {
		if !testenv.Ordinary(runtime) {
			t.Skip("SKIPPED, NOTHING WAS TESTED: ClrMD needs a libmscordaccore.so: set CLRSNAP_DOTNET_ROOTS")
		}
		a := testenv.Start(t, "heap", testenv.Options{Runtime: runtime, Env: serverEnv})
		checkWitness(t, a)
		livetest.EndsWell(t, a)
	})
}

// checkWitness compares with ClrMD, type by type. ClrMD counts an object's bytes without the padding to a multiple of
// eight.
func checkWitness(t *testing.T, a *testenv.App) {
	t.Helper()
	p := livetest.Open(t, a, clrsnap.Options{})
	out := testenv.AskClrMD(t, "heap", a)
	h := takeHeap(t, p)
	want := map[string]snapshot.HeapAmount{}
	for line := range bytes.Lines(out) {
		var row struct {
			Type         string
			Count, Bytes uint64
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch row.Type {
		case "": // a segment
		case "Free":
			if h.Free() != row.Bytes {
				t.Errorf("%d bytes are free, and the witness says %d", h.Free(), row.Bytes)
			}
		default:
			name := livetest.InCSharp(row.Type)
			x := want[name]
			x.Add(snapshot.HeapAmount{Count: row.Count, Bytes: row.Bytes})
			want[name] = x
		}
	}
	if len(want) < 80 {
		t.Fatalf("the witness knows %d types", len(want))
	}
	got := amounts(h)
	for name, x := range got {
		w := want[name]
		if x.Count != w.Count || x.Bytes < w.Bytes || x.Bytes > w.Bytes+7*w.Count {
			t.Errorf("%s: %+v, and the witness says %+v", name, x, w)
		}
		delete(want, name)
	}
	for name, w := range want {
		t.Errorf("%s: none, and the witness says %+v", name, w)
	}
}

// TestHeapCore: a core dump has the same.
func TestHeapCore(t *testing.T) { testenv.EachVersion(t, testHeapCore) }

func testHeapCore(t *testing.T, runtime string) {
	kinds := []testenv.DumpKind{testenv.DumpGCore, testenv.DumpWithHeap}
	a := testenv.Start(t, "heap", testenv.DumpOptions(t, testenv.DumpGCore, testenv.Options{Runtime: runtime}))
	for _, k := range kinds {
		if !k.Runs(runtime) {
			continue
		}
		p, err := clrsnap.OpenCore(t.Context(), testenv.Dump(t, a, k), clrsnap.CoreOptions{})
		if err != nil {
			t.Fatal(k, err)
		}
		h := takeHeap(t, p)
		p.Close()
		if h.Collecting {
			t.Error(k, "nothing was collected")
		}
		checkHeap(t, a, h)
	}
	livetest.EndsWell(t, a)
}

// TestHeapChurn: while threads allocate at full speed and the collector moves objects, no object ever has a wrong type,
// and objects that stay in place are counted right.
func TestHeapChurn(t *testing.T) { testenv.EachVersion(t, testHeapChurn) }

func testHeapChurn(t *testing.T, runtime string) {
	for name, env := range map[string][]string{"workstation": nil, "server": serverEnv} {
		a := testenv.Start(t, "heap", testenv.Options{Runtime: runtime, Env: env, Args: []string{"--megabytes", "20"}})
		want := truthOf(a)
		a.Ask("collect") // remaining objects are old from here on
		a.Ask("collect")
		a.Ask("churn 2")
		p := livetest.Open(t, a, clrsnap.Options{})
		best, sum := 0.0, 0.0
		const looks = 10
		for range looks {
			h := takeHeap(t, p)
			best, sum = max(best, h.ConsistentShare), sum+h.ConsistentShare
			all := amounts(h)
			for name, w := range want {
				if got := all[name]; got != w && consistentOld(h) {
					t.Errorf("%s: %+v, not %+v", name, got, w)
				}
			}
			for i := range h.Types {
				if n := h.Types[i].Name; n == "Shop.Never" || strings.HasPrefix(n, "[") {
					t.Errorf("%d objects of %s", h.Types[i].Count, n)
				}
			}
		}
		t.Logf("%s: on average %.3f of the heap was consistent, at best %.3f", name, sum/looks, best)
		if best < 0.3 {
			t.Errorf("at best %.3f of the heap was consistent", best)
		}
		livetest.EndsWell(t, a)
	}
}

// consistentOld reports whether nothing was moved in the old generations.
func consistentOld(h *snapshot.Heap) bool {
	for _, g := range []snapshot.Generation{snapshot.Gen2, snapshot.LargeObjects, snapshot.PinnedObjects} {
		if x := h.Generation(g); x.ConsistentBytes != x.Size {
			return false
		}
	}
	return true
}

func takeHeap(t *testing.T, p *clrsnap.Process) *snapshot.Heap {
	t.Helper()
	h, err := p.Heap(context.Background(), clrsnap.HeapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(h)
	return h
}

// takeWhole is takeHeap for a program at rest: sooner or later all of the heap is consistent. The collector may still
// give memory back.
func takeWhole(t *testing.T, p *clrsnap.Process) (h *snapshot.Heap) {
	t.Helper()
	testenv.UntilSeen(t, func() string {
		if h = takeHeap(t, p); h.ConsistentShare != 1 {
			return fmt.Sprintf("%.4f of the heap is consistent", h.ConsistentShare)
		}
		return ""
	})
	return h
}

func amounts(h *snapshot.Heap) map[string]snapshot.HeapAmount {
	out := map[string]snapshot.HeapAmount{}
	for i := range h.Types {
		a := out[h.Types[i].Name]
		a.Add(h.Types[i].HeapAmount)
		out[h.Types[i].Name] = a
	}
	return out
}

// truthOf is the program's own count of its classes.
func truthOf(a *testenv.App) map[string]snapshot.HeapAmount {
	out := map[string]snapshot.HeapAmount{}
	for _, line := range a.Ask("truth") {
		f := strings.Split(line, "\t")
		count, _ := strconv.ParseUint(f[1], 10, 64)
		size, _ := strconv.ParseUint(f[2], 10, 64)
		out[f[0]] = snapshot.HeapAmount{Count: count, Bytes: size}
	}
	return out
}

// checkHeap compares the heap of an idle program with the program's own count.
func checkHeap(t *testing.T, a *testenv.App, h *snapshot.Heap) {
	t.Helper()
	checkTypes(t, a, h)
	total, err := strconv.ParseFloat(a.Ask("total")[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	frozen := h.Generation(snapshot.FrozenObjects).Objects.Bytes // the collector does not count frozen objects
	if mine := float64(h.Objects().Bytes - frozen); math.Abs(mine-total) > total/100 {
		t.Errorf("%.0f bytes, and the collector says %.0f", mine, total)
	}
}

// checkTypes compares the classes whose objects the program counts.
func checkTypes(t *testing.T, a *testenv.App, h *snapshot.Heap) {
	t.Helper()
	want := truthOf(a)
	if len(want) < 12 {
		t.Fatalf("the program knows %d classes", len(want))
	}
	got := amounts(h)
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %+v, not %+v", name, got[name], w)
		}
	}
	if h.ConsistentShare != 1 || h.Partial {
		t.Errorf("%.4f of the heap is consistent", h.ConsistentShare)
	}
	frozen := h.Generation(snapshot.FrozenObjects).Objects.Bytes
	large, pinned := h.Generation(snapshot.LargeObjects).Objects, h.Generation(snapshot.PinnedObjects).Objects
	if large.Count < 7 || pinned.Count < 9 || frozen == 0 {
		t.Errorf("large %+v, pinned %+v, frozen %d", large, pinned, frozen)
	}
}

// checkObjects: single objects and texts are listed on demand.
func checkObjects(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{
		Type: regexp.MustCompile(`^Shop\.Colour\[\]$`), MaxInstances: 10, MaxStrings: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(h)
	if len(h.Instances) != 10 || h.Matching != amounts(h)["Shop.Colour[]"] {
		t.Errorf("%d instances of %+v", len(h.Instances), h.Matching)
	}
	for i, x := range h.Instances { // arrays of 99 elements and fewer, and 24 bytes besides
		if want := uint64(24+99-i+7) &^ 7; x.Bytes != want || x.Type != "Shop.Colour[]" {
			t.Errorf("instance %d is %+v, not of %d bytes", i, x, want)
		}
	}
	if !strings.Contains(textsOf(h), "\nliteral\n") {
		t.Errorf("the texts lack a literal:\n%s", textsOf(h))
	}
}

func textsOf(h *snapshot.Heap) string {
	var b strings.Builder
	b.WriteString("\n")
	for _, s := range h.Strings {
		b.WriteString(s.Text + "\n")
	}
	return b.String()
}

// handlers turns the path from a delegate to the delegates in its list into the path in .NET 10.
var handlers = strings.NewReplacer("System.Action._helperObject System.Delegate+Wrapper[].",
	"System.Action._invocationList object[].")

// checkLeak: clrsnap finds the path that keeps the listeners of an event.
func checkLeak(t *testing.T, a *testenv.App, p *clrsnap.Process) {
	t.Helper()
	a.Ask("leak 300")
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{Roots: regexp.MustCompile(`^Shop\.Listener$`)})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(h)
	if h.Kept.Count != 300 || len(h.Paths) == 0 {
		t.Fatalf("%+v, %d ways", h.Kept, len(h.Paths))
	}
	best := h.Paths[0]
	var steps []string
	for _, s := range best.Steps {
		steps = append(steps, s.Type+"."+s.Field)
	}
	got := handlers.Replace(strings.Join(steps, " "))
	const want = "System.Action._invocationList object[]. System.Action._target Shop.Listener."
	if best.Root != snapshot.RootStatic || best.Objects.Count < 290 || got != want {
		t.Errorf("%d of %d are kept by %s: %s", best.Objects.Count, h.Kept.Count, best.Root, got)
	}
	if h, err = p.Heap(t.Context(), clrsnap.HeapOptions{Retained: true}); err != nil {
		t.Fatal(err)
	}
	for i := range h.Types { // each listener has an array of 1,000 bytes
		if x := &h.Types[i]; x.Name == "Shop.Listener" && x.Retained != x.Bytes+300*1024 {
			t.Errorf("%d listeners of %d bytes retain %d", x.Count, x.Bytes, x.Retained)
		}
	}
	if best.Static != "Shop.Bus.Raised" {
		t.Errorf("they are kept by the static field %q", best.Static)
	}
}
