package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/profiletest"
	"clrsnap/snapshot"
)

// shopHeap is the heap of a synthetic process, a number of seconds after its
// start.
func shopHeap(seconds int) *snapshot.Heap {
	amount := func(n, size int) snapshot.HeapAmount {
		return snapshot.HeapAmount{Count: uint64(n), Bytes: uint64(n * size)}
	}
	h := &snapshot.Heap{
		Process: snapshot.Process{
			PID: 4242, Command: "dotnet Shop.dll",
			Runtime: snapshot.Runtime{Version: "10.0.12", Path: "/usr/lib/libcoreclr.so", Shape: "shared"},
		},
		CapturedAt: time.Date(2026, 1, 2, 3, 4, 5+seconds, 0, time.UTC), Duration: 12 * time.Millisecond,
		ConsistentShare: 1,
	}
	add := func(name, assembly string, young, old snapshot.HeapAmount) {
		t := snapshot.HeapType{Name: name, Assembly: assembly}
		t.Generations[snapshot.Gen0], t.Generations[snapshot.Gen2] = young, old
		t.Add(young)
		t.Add(old)
		h.Types = append(h.Types, t)
	}
	add("string", coreLib, amount(1000, 64), amount(20_000, 80))
	add("Shop.Customer<string>", "Shop", amount(100*seconds, 40), amount(10_000+1000*seconds, 40))
	add("Shop.Line[]", "Shop", amount(0, 0), amount(max(500-500*seconds, 0), 400))
	add("System.Collections.Generic.Dictionary<string, System.Collections.Generic.List<Shop.Order>>+Entry[]", coreLib,
		amount(1, 100), amount(2, 5000))
	for heap := range 2 {
		for g, scale := range []int{1, 0, 20, 3} {
			h.Parts = append(h.Parts, snapshot.HeapPart{
				Heap: heap, Generation: snapshot.Generation(g), Regions: 1, Size: uint64(scale * 100_000),
				Reserved: 4 << 20, Objects: amount(scale*500, 160), Free: amount(scale*10, 1500),
				Unused: uint64(scale * 5000), ConsistentBytes: uint64(scale * 100_000),
			})
		}
	}
	return h
}

func TestHeapText(t *testing.T) {
	torn := shopHeap(0)
	torn.ConsistentShare = 0.99997
	torn.Parts[0].ConsistentBytes = 0
	chosen := shopHeap(0)
	chosen.Matching = snapshot.HeapAmount{Count: 3, Bytes: 1200}
	chosen.Instances = []snapshot.HeapInstance{
		{Address: 0x7f00_1000, Type: "Shop.Line[]", Bytes: 800, Generation: snapshot.LargeObjects},
		{Address: 0x7f00_2000, Type: "Shop.Line[]", Bytes: 200, Generation: snapshot.Gen2},
	}
	chosen.Strings = []snapshot.HeapString{
		{Text: "a\x1b[31m\n\u202eb", HeapAmount: snapshot.HeapAmount{Count: 2, Bytes: 64}},
		{Text: strings.Repeat("x", 200), Cut: true, HeapAmount: snapshot.HeapAmount{Count: 1, Bytes: 4000}},
	}
	kept := shopHeap(0)
	kept.Kept = snapshot.HeapAmount{Count: 21_000, Bytes: 1_200_000}
	kept.Paths = []snapshot.HeapPath{
		{
			Root: snapshot.RootStatic, Static: "Shop.Bus.Raised", Sampled: true,
			Objects: snapshot.HeapAmount{Count: 20_000, Bytes: 1_100_000},
			Steps: []snapshot.HeapStep{
				{Type: "System.Action", Times: 1, Field: "_invocationList"}, {Type: "object[]", Times: 1},
				{Type: "System.Action", Times: 1, Field: "_target"}, {Type: "Shop.Listener", Times: 1},
			},
		},
		{
			Root: snapshot.RootUnknown, Objects: snapshot.HeapAmount{Count: 1, Bytes: 32},
			Steps: []snapshot.HeapStep{
				{Type: "Shop.Node", Times: 1}, {Type: "Shop.Node", Times: 250, Field: "Left", Gap: true},
				{Type: "Shop.Listener", Times: 1},
			},
		},
		{Root: snapshot.RootStatic, Steps: []snapshot.HeapStep{{Type: "Shop.Listener", Times: 1}}},
	}
	rooted := shopHeap(0)
	rooted.Kept = snapshot.HeapAmount{Count: 8, Bytes: 800}
	rooted.RootsMoved, rooted.RootsLack = true, []string{"handles: cannot read 8 bytes\x1b[2J"}
	worker := &snapshot.ThreadRef{OSThreadID: 4243, ManagedThreadID: 7, Name: "orders-1\x1b[31m"}
	for _, x := range []snapshot.HeapPath{
		{Root: snapshot.RootStatic},
		{Root: snapshot.RootThreadStatic, Static: "Shop.Cache.own", Thread: worker},
		{Root: snapshot.RootThreadStatic, Thread: &snapshot.ThreadRef{OSThreadID: 4244}},
		{Root: snapshot.RootHandle, Handle: snapshot.HandlePinned},
		{Root: snapshot.RootFinalizer},
		{Root: snapshot.RootStack, Thread: worker, Method: "Shop.Orders.Place"},
		{Root: snapshot.RootStack, Thread: worker},
		{Root: snapshot.RootCircle},
	} {
		x.Objects = snapshot.HeapAmount{Count: 1, Bytes: 100}
		x.Steps = []snapshot.HeapStep{{Type: "Shop.Order", Times: 1, Dependent: true}, {Type: "Shop.Listener",
			Times: 1}}
		rooted.Paths = append(rooted.Paths, x)
	}
	retained := shopHeap(0)
	retained.HasRetained = true
	retained.Types[1].Retained, retained.Types[0].Retained = 2_000_000, retained.Types[0].Bytes
	kept.OtherPaths = snapshot.HeapAmount{Count: 7, Bytes: 700}
	unmatched, unkept := shopHeap(0), shopHeap(0)
	unmatched.HasInstances, unkept.HasPaths, unkept.GraphCut = true, true, true
	stopped, exhausted := shopHeap(0), shopHeap(0)
	stopped.Stop = &snapshot.HeapStop{Exact: true, Pause: 12345678, Stops: 2, Threads: 23, Unfinished: 2}
	exhausted.Stop = &snapshot.HeapStop{Reason: "it takes about 50\u202ems", Pause: 10048 * 1000, Stops: 1, Threads: 23,
		Needed: 75e6}
	traced := shopHeap(0)
	traced.Stop = &snapshot.HeapStop{Reason: "thread 12: already traced by process 7 (gdb)"}
	dump := shopHeap(0)
	dump.Process.Core = &snapshot.Core{Path: "core.1", Writer: "gcore"}
	dump.Collecting, dump.Partial = true, true
	for name, c := range map[string]struct {
		h *snapshot.Heap
		o HeapOptions
	}{
		"heap":           {shopHeap(0), HeapOptions{}},
		"heap-narrow":    {torn, HeapOptions{Terminal: Terminal{Width: 70, Color: true}, Rows: 2}},
		"heap-change":    {shopHeap(3), HeapOptions{Base: shopHeap(0)}},
		"heap-instances": {chosen, HeapOptions{}},
		"heap-core":      {dump, HeapOptions{Rows: 1}},
		"heap-stopped":   {stopped, HeapOptions{Rows: 1}},
		"heap-exhausted": {exhausted, HeapOptions{Rows: 1}},
		"heap-traced":    {traced, HeapOptions{Rows: 1}},
		"heap-retained":  {retained, HeapOptions{}},
		"heap-roots":     {kept, HeapOptions{Rows: 2}},
		"heap-rooted":    {rooted, HeapOptions{}},
		"heap-unmatched": {unmatched, HeapOptions{Rows: 1}},
		"heap-unkept":    {unkept, HeapOptions{Rows: 1}},
	} {
		var b bytes.Buffer
		if err := HeapText(&b, c.h, c.o); err != nil {
			t.Fatal(err)
		}
		profiletest.Golden(t, name+".txt", b.Bytes())
		b.Reset()
		if err := HeapJSON(&b, c.h, c.o); err != nil {
			t.Fatal(err)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
			t.Fatalf("%v: %s", err, b.Bytes())
		}
		profiletest.Golden(t, name+".json", indented.Bytes())
	}
}

// A walk that ended during a stop is not said to have gone on.
func TestHeapNotesInterrupted(t *testing.T) {
	h := shopHeap(0)
	h.Partial, h.Stop = true, &snapshot.HeapStop{Reason: "it was interrupted", Stops: 1, Pause: 5e6}
	notes := HeapNotes(h)
	if len(notes) < 2 ||
		notes[0] != "This is not the heap of one moment: it was interrupted. The program stood still for 5ms." {
		t.Errorf("%q", notes)
	}
}

// Whole JSON can be compared with later; a part cannot.
func TestReadHeapJSON(t *testing.T) {
	var b bytes.Buffer
	before := shopHeap(0)
	if err := HeapJSON(&b, before, HeapOptions{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	all := uint64(0)
	for i := range before.Types {
		all += before.Types[i].Count
	}
	_, err := ReadHeapJSON(strings.NewReader(text)) // the total differs from the sum of the types
	if !errors.Is(err, ErrNotHeap) || !strings.Contains(err.Error(), "--limit") {
		t.Error(err)
	}
	before.Parts = []snapshot.HeapPart{{Objects: snapshot.HeapAmount{Count: all, Bytes: 1}}}
	b.Reset()
	if err := HeapJSON(&b, before, HeapOptions{}); err != nil {
		t.Fatal(err)
	}
	h, err := ReadHeapJSON(&b)
	if err != nil || !h.CapturedAt.Equal(before.CapturedAt) || len(h.ChangeFrom(before)) != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	many := `{"totalBytes":1,"types":[{}` + strings.Repeat(",{}", maxHeapTypes) + `]}`
	partial := `{"totalBytes":1,"partial":true,"types":[]}`
	for _, text := range []string{
		partial, many, `{"totalBytes":1,"types":{}}`, "", "{}", "[]", `{"totalBytes":-1}`,
		`{"totalBytes":1,"types":[{"count":1e30}]}`,
	} {
		if _, err := ReadHeapJSON(strings.NewReader(text)); !errors.Is(err, ErrNotHeap) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// FuzzReadHeapJSON: any file is refused, or can be compared with.
func FuzzReadHeapJSON(f *testing.F) {
	f.Add(`{"capturedAt":"2026-01-02T03:04:05Z","totalBytes":64,"totalCount":2,` +
		`"types":[{"type":"string","assembly":"System.Private.CoreLib","count":2,"bytes":64,"generation":{"gen2":1}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ReadHeapJSON(strings.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := HeapText(&b, shopHeap(0), HeapOptions{Base: h}); err != nil {
			t.Fatal(err)
		}
	})
}
