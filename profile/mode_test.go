package profile

import (
	"slices"
	"testing"

	"clrsnap/snapshot"
)

func TestModes(t *testing.T) {
	for i, m := range Modes {
		if got, ok := ModeNamed(m.String()); !ok || got != m || int(m) != i || m.Title() == "" || !m.Known() {
			t.Errorf("mode %d: %q is %v, %v; title %q", i, m.String(), got, ok, m.Title())
		}
	}
	if m, ok := ModeNamed("heap"); ok {
		t.Errorf("heap is %v", m)
	}
	if m := Mode(len(Modes)); m.Known() || m.String() != "mode 9" {
		t.Errorf("known %v: %v", m.Known(), m)
	}
	ofEvents := slices.DeleteFunc(slices.Clone(Modes[:]), func(m Mode) bool { return !m.OfEvents() })
	if want := []Mode{Alloc, Exception, Contention, ThreadStart, GC, Waits, Live}; !slices.Equal(ofEvents, want) {
		t.Errorf("of events are %v", ofEvents)
	}
	for unit, want := range map[Unit][]Mode{
		Nanoseconds: {CPU, Wall, Contention, GC, Waits}, Bytes: {Alloc, Live}, Count: {Exception, ThreadStart},
	} {
		got := slices.DeleteFunc(slices.Clone(Modes[:]), func(m Mode) bool { return m.Unit() != unit })
		if !slices.Equal(got, want) {
			t.Errorf("in %v are %v", unit, got)
		}
	}
}

// allocations is a recording of objects, allocated by methods and by native code.
func allocations() *Recording {
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{})
	class := b.Function(Function{Kind: snapshot.Event, Display: "System.Byte[]", Module: "System.Private.CoreLib"})
	array := b.Location(Location{Function: class})
	add := func(node int32, weight, events int64) {
		b.Add(Sample{Node: b.Child(node, array), Weight: weight, Events: events, Mode: Alloc})
	}
	add(stack(b, "main>work"), 100, 3)
	add(stack(b, "main>[libc]"), 40, 2)
	add(0, 7, 1)
	return b.Recording()
}

// TestEventTotals: the event is the leaf; the event's origin is the origin of its caller.
func TestEventTotals(t *testing.T) {
	r := allocations()
	got := r.Totals(Alloc)
	if all := got.All.All(); all != (Amount{147, 6, 3}) {
		t.Errorf("all: %v", all)
	}
	for _, f := range got.Functions {
		name := r.Functions[f.Function].Display
		self := Amount{}
		direct := map[string]Amount{"work": {100, 3, 1}, "[libc]": {40, 2, 1}, "System.Byte[]": {7, 1, 1}}[name]
		if name == "System.Byte[]" {
			self = Amount{147, 6, 3}
		}
		if f.Self.All() != self || f.Direct.All() != direct {
			t.Errorf("%s: %v, directly %v", name, f.Self.All(), f.Direct.All())
		}
	}
	want := map[snapshot.Origin]Amount{snapshot.OfUser: {100, 3, 1}, snapshot.OfNative: {40, 2, 1},
		snapshot.OfEvent: {7, 1, 1}}
	for o, part := range got.Origins {
		if part.All() != want[o] {
			t.Errorf("%s: %v, want %v", o, part.All(), want[o])
		}
		delete(want, o)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// TestManagedEvents: events are kept, whether they happened in managed code or not.
func TestManagedEvents(t *testing.T) {
	r := allocations().Select(Selection{Managed: true})
	var got []string
	for _, s := range r.Samples {
		got = append(got, text(r, s.Node))
	}
	if want := []string{"main>work>System.Byte[]", "main>System.Byte[]", "System.Byte[]"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
