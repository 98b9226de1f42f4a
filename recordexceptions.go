package clrsnap

import (
	"slices"
	"time"

	"clrsnap/profile"
)

// pendingException is an exception of which it is not known yet who catches it.
type pendingException struct {
	at        time.Duration
	class     profile.Function
	count     int64
	thread    *recordedThread
	stack     []int32      // locations, leaf first
	functions []FunctionID // likewise
	whole     bool
}

// exceptionPatience is how long an exception waits for the one who catches it:
// that is looked for before anything else happens, but filters run meanwhile,
// which may take their time.
const exceptionPatience = 2 * time.Second

// maxPendingExceptions bounds what waits for one thread: exceptions that are thrown
// while a handler for another one is being looked for.
const maxPendingExceptions = 64

// throws takes notice of an exception.
func (np *notifiedProcess) throws(n *Notification) {
	t := np.thread(n)
	if !t.chosen {
		return
	}
	f := np.rp.frames
	x := pendingException{at: n.At, class: f.class(n.Class), count: n.Count, thread: t, whole: f.notified(n)}
	x.stack = slices.Clone(f.stack)
	for i := range n.record.Frames {
		x.functions = append(x.functions, FunctionID(n.record.Frames[i].Function))
	}
	x.functions = x.functions[len(x.functions)-len(x.stack):]
	waiting := append(np.thrown[n.NSThreadID], x)
	if len(waiting) > maxPendingExceptions {
		np.uncaught(&waiting[0])
		waiting = waiting[1:]
	}
	np.thrown[n.NSThreadID] = waiting
}

// catches takes notice of the method that catches the thread's last exception, or
// of its having been thrown in a filter, which nobody hears of.
func (np *notifiedProcess) catches(n *Notification) {
	waiting := np.thrown[n.NSThreadID]
	if len(waiting) == 0 {
		return // the exception was not wanted
	}
	x := &waiting[len(waiting)-1]
	if waiting = waiting[:len(waiting)-1]; len(waiting) == 0 {
		delete(np.thrown, n.NSThreadID)
	} else {
		np.thrown[n.NSThreadID] = waiting
	}
	// The method is on the stack, and so its name is known already; nearest to the
	// base it is itself, and not one of its filters.
	for i := len(x.functions) - 1; i >= 0 && n.Function != 0; i-- {
		if x.functions[i] == n.Function {
			_, f := np.e.r.b.At(x.stack[i])
			np.settled(x, "caught by "+f.Display, "caught by "+f.Short)
			return
		}
	}
	fate := "caught"
	if n.Function == 0 {
		fate = "swallowed by a filter"
	}
	np.settled(x, fate, fate)
}

// settled adds the sample of an exception whose fate is known.
func (np *notifiedProcess) settled(x *pendingException, display, short string) {
	x.class.Display += ", " + display
	x.class.Short += ", " + short
	np.sample(x.at, x.thread, profile.Exception, float64(x.count), float64(x.count), x.class, x.stack, x.whole)
}

func (np *notifiedProcess) uncaught(x *pendingException) { np.settled(x, "not caught", "not caught") }

// settle gives up waiting for who catches exceptions that were thrown before a
// time.
func (np *notifiedProcess) settle(before time.Duration) {
	for tid, waiting := range np.thrown {
		for len(waiting) > 0 && waiting[0].at <= before {
			np.uncaught(&waiting[0])
			waiting = waiting[1:]
		}
		if len(waiting) == 0 {
			delete(np.thrown, tid)
			continue
		}
		np.thrown[tid] = waiting
	}
}
