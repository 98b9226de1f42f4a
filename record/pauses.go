package record

import (
	"fmt"
	"slices"
	"time"

	"clrsnap/events"
	"clrsnap/profile"
)

// gcPauses joins the runtime's reports of garbage collections: the thread that triggered a collection,
// and the collection's stops.
type gcPauses struct {
	trigger    *gcTrigger    // of the collection that is about to start
	background *gcCycle      // the latest collection that lets the program run
	stopped    *gcCycle      // the collection that started during the present stop
	began      time.Duration // when the present stop began; 0: there is none
	dropped    uint64        // notifications of all events that were dropped by then
	reason     events.SuspendReason
}

// gcTrigger is the thread that could not go on without a collection.
type gcTrigger struct {
	thread *recordedThread
	stack  []int32 // locations, leaf first
	whole  bool
}

// gcCycle is a collection, with the thread that triggered the collection.
type gcCycle struct {
	collection events.Collection
	trigger    *gcTrigger
	counted    bool
}

func (g *gcPauses) notified(np *notifiedProcess, n *notification) {
	switch n.Event {
	case events.RuntimeSuspendStarted:
		g.began, g.reason, g.stopped, g.dropped = n.At, n.Suspension, nil, n.droppedBefore()
	case events.GarbageCollectionTriggered:
		f := np.rp.frames
		whole := f.notified(n)
		g.trigger = &gcTrigger{thread: np.thread(n), stack: slices.Clone(f.stack), whole: whole}
	case events.GarbageCollectionStarted:
		g.stopped = &gcCycle{collection: n.Collection, trigger: g.trigger}
		if g.trigger = nil; n.Collection.Type == events.BackgroundCollection {
			g.background = g.stopped
		}
	case events.RuntimeResumeFinished:
		g.resumed(np, n)
	}
}

// resumed adds the sample of a stop that has ended. A stop without a collection has another cause, a
// debugger, say. The stop delays the program all the same, and is a sample too.
func (g *gcPauses) resumed(np *notifiedProcess, n *notification) {
	if g.began == 0 {
		return // the stop began before the subscription
	}
	np.arrived[profile.GC]++
	if n.droppedBefore() != g.dropped {
		g.began, g.stopped = 0, nil // that stop may have ended, and another begun, among the dropped notifications
		return
	}
	pause, cycle := n.At-g.began, g.stopped
	if g.began = 0; cycle == nil && g.reason == events.SuspendForGCPrep {
		cycle = g.background
	}
	by, what, events := &gcTrigger{whole: true}, fmt.Sprintf("stopped: %v", g.reason), 0.0
	if cycle != nil {
		c := cycle.collection
		what = fmt.Sprintf("gen %d, %v, %v", c.Generation, c.Type, c.Reason)
		if cycle.trigger != nil {
			by = cycle.trigger
		}
		if !cycle.counted {
			cycle.counted, events = true, 1
		}
	}
	t := by.thread
	if t == nil {
		t = np.thread(n)
	}
	if t.chosen {
		np.sample(n.At, t, profile.GC, float64(pause), events, eventFunction(what), by.stack, by.whole)
	}
}

// droppedBefore is how many notifications were dropped before this notification. Only notifications of
// the beginning or the end of a stop of the program have the number.
func (n *notification) droppedBefore() uint64 { return n.record.Values[3] }
