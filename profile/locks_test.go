package profile

import (
	"reflect"
	"testing"
	"time"

	"clrsnap/snapshot"
)

// lockRecording has waits for two locks, and a wait whose events name only the holder.
func lockRecording() *Recording {
	b := NewBuilder(Limits{})
	at := func(kind snapshot.Kind, name string) int32 {
		return b.Location(Location{Function: b.Function(Function{Kind: kind, Display: name, Method: name})})
	}
	main, save := at(snapshot.Managed, "Main"), at(snapshot.Managed, "Save")
	order, gate := at(snapshot.Event, "lock Order"), at(snapshot.Event, "lock object")
	bySave, unseen := at(snapshot.Event, "held by Save"), at(snapshot.Event, "held by worker")
	waiter := b.Thread(RecordedThread{OSThreadID: 1})
	holder := b.Thread(RecordedThread{OSThreadID: 2})
	other := b.Thread(RecordedThread{OSThreadID: 3})
	wait := func(ms int, thread int32, stack ...int32) {
		b.Add(Sample{At: time.Duration(ms) * time.Millisecond, Weight: int64(ms), Events: 1, Thread: thread,
			Node: b.Stack(stack), Mode: Contention, State: Waiting})
	}
	wait(10, waiter, bySave, order, main)
	wait(20, waiter, unseen, order, main)
	wait(40, other, bySave, order, main)
	wait(5, waiter, unseen, gate, main)
	wait(7, waiter, unseen, main) // of an older recording
	hold := func(ms, waited int, waiter int32, stack ...int32) {
		b.Hold(Hold{
			At: time.Duration(ms) * time.Millisecond, Waited: time.Duration(waited) * time.Millisecond,
			Lock: b.FunctionOf(order), Holder: b.FunctionOf(bySave), Waiter: waiter, Thread: holder,
			Node: b.Stack(stack),
		})
	}
	hold(39, 9, other, save, main)
	hold(35, 5, other, save, main)
	hold(9, 3, waiter, save)
	r := b.Recording()
	r.Processes = []snapshot.Process{{}}
	return r
}

func TestLocks(t *testing.T) {
	r := lockRecording()
	got := r.Locks()
	if len(got) != 2 {
		t.Fatalf("%d locks: %+v", len(got), got)
	}
	name := func(f int32) string { return r.Functions[f].Display }
	first := got[0]
	if name(first.Function) != "lock Order" || first.Waits != (Amount{70, 3, 3}) || first.Mean() != 23 ||
		len(first.Holders) != 2 {
		t.Fatalf("%+v", first)
	}
	by := first.Holders[0]
	if name(by.Function) != "held by Save" || by.Waits != (Amount{50, 2, 2}) || len(by.Stacks) != 2 ||
		by.Stacks[0].Looks != 2 || by.Stacks[0].Waited != 5*time.Millisecond {
		t.Errorf("%+v", by)
	}
	if second := got[1]; name(second.Function) != "lock object" || len(second.Holders[0].Stacks) != 0 {
		t.Errorf("%+v", second)
	}
}

// TestSelectHolds: looks at holders are chosen like the waits, and keep their stacks and threads.
func TestSelectHolds(t *testing.T) {
	r := lockRecording()
	if r.Holds[0].At > r.Holds[1].At {
		t.Error("the looks are not in order")
	}
	all := r.Select(Selection{})
	if !reflect.DeepEqual(all.Locks()[0].Holders[0].Stacks[0].Looks, 2) || len(all.Holds) != 3 {
		t.Errorf("%+v", all.Holds)
	}
	for what, s := range map[string]struct {
		Selection
		want int
	}{
		"a waiter":    {Selection{Threads: func(t *RecordedThread) bool { return t.OSThreadID == 3 }}, 2},
		"the holder":  {Selection{Threads: func(t *RecordedThread) bool { return t.OSThreadID == 2 }}, 0},
		"a time":      {Selection{From: 36 * time.Millisecond}, 1},
		"other modes": {Selection{Modes: []Mode{CPU, Wall}}, 0},
	} {
		got := r.Select(s.Selection)
		if len(got.Holds) != s.want {
			t.Errorf("%s: %d looks, want %d", what, len(got.Holds), s.want)
		}
		for _, h := range got.Holds {
			if got.Threads[h.Thread].OSThreadID != 2 || got.Functions[h.Lock].Display != "lock Order" ||
				got.Functions[h.Holder].Display != "held by Save" || got.Function(h.Node).Display != "Save" {
				t.Errorf("%s: %+v", what, h)
			}
		}
	}
}
