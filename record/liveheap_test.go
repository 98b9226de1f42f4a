package record

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/heapwalk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// heapOf is a live heap without a process. freed has the slots given back.
func heapOf(freed *[]uint32) *liveHeap {
	b := profile.NewBuilder(profile.Limits{})
	b.Thread(profile.RecordedThread{})
	return newLiveHeap(b, func(slots []uint32) error {
		*freed = append(*freed, slots...)
		return nil
	})
}

// allocate follows an object of so many bytes. Its slot is its index in the order of allocations.
func (l *liveHeap) allocate(at time.Duration, slot uint32, size uint64) {
	n := notification{
		&events.Notification{At: at, Class: clrsnap.ClassID(0x1000), Size: size},
		&agent.Record{HasHandle: true, Handle: agent.Handle{Address: 0x10000 + 8*uint64(slot), Slot: slot}},
	}
	s := profile.Sample{At: at, Weight: 1 << 20, Events: 10, Mode: profile.Alloc}
	l.allocated(&n, &s, profile.Function{Kind: snapshot.Event, Display: "Shop.Order", Short: "Order"}, 0)
}

// collect reports a collection that has ended.
func (l *liveHeap) collect(number, generation int, at time.Duration) {
	c := events.Collection{Number: number, Generation: generation}
	l.collections.notified(&events.Notification{Event: events.GarbageCollectionStarted, At: at, Collection: c})
	if l.collections.notified(&events.Notification{Event: events.GarbageCollectionFinished, At: at + 1,
		Collection: c}) {
		l.stale = true
	}
}

// dead is a look after which some objects are dead, by slot; the others are in a generation.
func dead(in snapshot.Generation, slots ...uint32) func([]heapwalk.Handle) ([]heapwalk.Followed, error) {
	return func(handles []heapwalk.Handle) ([]heapwalk.Followed, error) {
		out := make([]heapwalk.Followed, len(handles))
		for i, h := range handles {
			if slot := uint32(h.Address-0x10000) / 8; !slices.Contains(slots, slot) {
				out[i] = heapwalk.Followed{Object: arch.Addr(0x7f00_0000_0000), Generation: in, Placed: true}
			}
		}
		return out, nil
	}
}

func (l *liveHeap) finished() (leaves map[string]int64) {
	l.finish()
	leaves = map[string]int64{}
	r := l.b.Recording()
	for i := range r.Samples {
		s := &r.Samples[i]
		leaves[fmt.Sprintf("%v %s", s.Mode, r.Function(s.Node).Display)] += s.Weight
	}
	return leaves
}

// TestProvedAlive: objects that a collection has looked at are alive; younger objects are left out, or
// marked if no collection of their kind has looked.
func TestProvedAlive(t *testing.T) {
	const order, marked = "live Shop.Order", "live Shop.Order (not collected yet)"
	for _, c := range []struct {
		name string
		do   func(l *liveHeap)
		want map[string]int64
		left int64 // bytes left out
	}{
		{"no collection", func(l *liveHeap) { l.look(dead(snapshot.Gen0)) }, map[string]int64{marked: 3 << 20}, 0},
		{"never looked at", func(l *liveHeap) {}, map[string]int64{marked: 3 << 20}, 0},
		{
			"a young collection", func(l *liveHeap) { l.collect(1, 0, 25); l.look(dead(snapshot.Gen1, 0)) },
			map[string]int64{order: 1 << 20, marked: 1 << 20}, 0, // the third object is marked
		},
		{
			"and what came after it", func(l *liveHeap) { l.collect(1, 0, 25); l.look(dead(snapshot.Gen0, 0)) },
			map[string]int64{order: 1 << 20}, 1 << 20,
		},
		{
			"a full collection of large objects",
			func(l *liveHeap) { l.collect(7, 2, 25); l.look(dead(snapshot.LargeObjects)) },
			map[string]int64{order: 2 << 20, marked: 1 << 20}, 0,
		},
		{
			"a young collection of large objects",
			func(l *liveHeap) { l.collect(7, 1, 35); l.look(dead(snapshot.LargeObjects)) },
			map[string]int64{marked: 3 << 20}, 0,
		},
		{
			"the end before a look", func(l *liveHeap) { l.collect(1, 2, 35) }, map[string]int64{}, 3 << 20,
		},
		{
			"the end after a look", func(l *liveHeap) {
				l.collect(1, 2, 15)
				l.look(dead(snapshot.Gen2))
				l.collect(2, 2, 35)
				l.look(func([]heapwalk.Handle) ([]heapwalk.Followed, error) { return nil, errors.New("it has exited") })
			}, map[string]int64{order: 1 << 20, marked: 2 << 20}, 0,
		},
		{
			"a collection that began before", func(l *liveHeap) {
				l.collections.notified(&events.Notification{Event: events.GarbageCollectionFinished, At: 40})
				l.look(dead(snapshot.Gen1))
			}, map[string]int64{marked: 3 << 20}, 0,
		},
	} {
		l := heapOf(new([]uint32))
		for i := range 3 {
			l.allocate(time.Duration(10*(i+1)), uint32(i), 24)
		}
		c.do(l)
		got := l.finished()
		if fmt.Sprint(got) != fmt.Sprint(c.want) || l.sum.young != c.left {
			t.Errorf("%s: %v, and %d are left out; want %v, and %d", c.name, got, l.sum.young, c.want, c.left)
		}
	}
}

// TestThin: with too many live objects some are followed no more, and the others stand for them.
func TestThin(t *testing.T) {
	var freed []uint32
	l := heapOf(&freed)
	const n = 100_000
	slots := []uint32{} // free ones
	next := uint32(0)
	for i := range n {
		l.tend(time.Duration(i))
		slots, freed = append(slots, freed...), freed[:0]
		slot := next
		if len(slots) > 0 {
			slot, slots = slots[len(slots)-1], slots[:len(slots)-1]
		} else {
			next++
		}
		if _, used := l.objects[slot]; used {
			t.Fatalf("slot %d is used twice", slot)
		}
		l.allocate(time.Duration(i), slot, 24)
	}
	l.tend(n)
	if next > maxFollowed || len(l.objects) < thinFrom/4 || l.every < 4 {
		t.Errorf("%d handles at a time, %d objects at the end, one of %d", next, len(l.objects), l.every)
	}
	l.collect(1, 2, n+1)
	l.look(dead(snapshot.Gen2))
	got := float64(l.finished()["live Shop.Order"])
	want := float64(n << 20)
	if sigma := float64(l.every<<20) * math.Sqrt(float64(len(l.objects))); math.Abs(got-want) > 5*sigma {
		t.Errorf("%.0f bytes are alive, want %.0f ± %.0f", got, want, sigma)
	}
	text := strings.Join(l.remarks(n), "\n")
	if says := fmt.Sprintf("one of %d sampled objects was followed", l.every); !strings.Contains(text, says) {
		t.Errorf("notes %s", text)
	}
}

// TestHandlesThatAreNone: the words of a hostile process need not be a handle, and events need not
// make sense.
func TestHandlesThatAreNone(t *testing.T) {
	var freed []uint32
	l := heapOf(&freed)
	for i, at := range []uint64{0, 4, 1 << 57, math.MaxUint64 &^ 7} {
		n := notification{&events.Notification{Class: 1}, &agent.Record{
			HasHandle: true, Handle: agent.Handle{Address: at, Slot: uint32(i)},
		}}
		l.allocated(&n, &profile.Sample{Weight: 1}, profile.Function{}, 0)
	}
	l.free()
	if len(l.objects) > 0 || len(freed) != 3 {
		t.Errorf("%d objects are followed, and %d handles were given back", len(l.objects), len(freed))
	}
	for i := range 1000 {
		l.collections.notified(&events.Notification{
			Event: events.GarbageCollectionStarted, Collection: events.Collection{Number: i, Generation: i - 500},
		})
	}
	if len(l.collections.begun) > maxBegun {
		t.Errorf("%d collections are under way", len(l.collections.begun))
	}
}

// TestDeaf: an agent that takes no slots is not asked again, and its handles are not believed from
// then on.
func TestDeaf(t *testing.T) {
	l := heapOf(new([]uint32))
	asked := 0
	l.destroy = func([]uint32) error {
		asked++
		return errors.New("no answer")
	}
	for i := range 3 {
		l.allocate(time.Duration(10*(i+1)), uint32(i), 24)
	}
	l.collect(1, 2, 35)
	l.look(dead(snapshot.Gen2, 0))
	l.free()
	l.drop(l.objects[1])
	l.free()
	if asked != 1 || !l.deaf || len(l.frees) > 0 {
		t.Errorf("asked %d times, %d slots are kept", asked, len(l.frees))
	}
	l.collect(2, 2, 45)
	l.tend(time.Hour) // a look without a process would panic
	l.ended = true
	l.finish()
	if text := strings.Join(l.remarks(time.Hour), "\n"); !strings.Contains(text,
		"were alive at the last look") ||
		!strings.Contains(text, "The agent in the program does not answer any more: ") {
		t.Error(text)
	}
}

// TestEndedUnseen: if a program has ended before a look at its handles, nothing is called alive.
func TestEndedUnseen(t *testing.T) {
	l := heapOf(new([]uint32))
	l.allocate(10, 0, 24)
	l.collect(1, 2, 35)
	l.ended = true
	l.finish()
	text := strings.Join(l.remarks(time.Hour), "\n")
	if strings.Contains(text, "were alive") || strings.Contains(text, "has found the object alive") ||
		!strings.Contains(text, "The program has ended, and the live objects are not known") {
		t.Error(text)
	}
}

// TestRounded: no amount from a hostile process overflows anything.
func TestRounded(t *testing.T) {
	for amount, want := range map[float64]int64{0: 0, 0.4: 0, 1.5: 2, math.MaxFloat64: 1 << 56,
		float64(1 << 63): 1 << 56} {
		if got := rounded(amount); got != want {
			t.Errorf("%v: %d, want %d", amount, got, want)
		}
	}
}

// TestUnreadHandle: an object with an unreadable handle is called neither dead nor alive.
func TestUnreadHandle(t *testing.T) {
	var freed []uint32
	l := heapOf(&freed)
	for i := range 3 {
		l.allocate(10, uint32(i), 24)
	}
	l.collect(1, 2, 35)
	alive := dead(snapshot.Gen2)
	if !l.look(func(handles []heapwalk.Handle) ([]heapwalk.Followed, error) {
		out, err := alive(handles)
		out[1] = heapwalk.Followed{Unread: true}
		return out, err
	}) {
		t.Error("the look has failed")
	}
	if got := l.finished(); got["live Shop.Order"] != 2<<20 || len(got) != 1 || len(l.frees) != 1 {
		t.Errorf("%v; given back: %d", got, l.frees)
	}
	text := strings.Join(l.remarks(time.Hour), "\n")
	if !strings.Contains(text, "The handles of 1 sampled object could not be read") {
		t.Error(text)
	}
}
