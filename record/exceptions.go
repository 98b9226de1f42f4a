package record

import (
	"slices"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/profile"
)

// pendingException is an exception whose catcher is not known yet.
type pendingException struct {
	at        time.Duration
	class     profile.Function
	count     int64
	thread    *recordedThread
	stack     []int32              // locations, leaf first
	functions []clrsnap.FunctionID // likewise
	whole     bool

	superseded bool // a handler that it would have reached has caught a later exception
}

// exceptionPatience is how long to wait for the notification that an exception is caught. Filters
// and finally blocks run before it, and can take long.
const exceptionPatience = 10 * time.Second

// What becomes of an exception that is not caught, as far as is known.
const (
	uncaught   = "not caught"
	swallowed  = "swallowed by a filter"
	superseded = "replaced by another exception"
	inFlight   = "not caught yet"
	unknown    = "fate unknown"
)

// maxPendingExceptions bounds the pending exceptions of one thread. There is more than one if
// another is thrown before the first is caught: by a filter or a finally block.
const maxPendingExceptions = 64

// maxThrown bounds the pending exceptions of all threads of a process. A hostile process can
// report any number.
const maxThrown = 1 << 13

// throws records a pending exception.
func (np *notifiedProcess) throws(n *notification) {
	t := np.thread(n)
	if !t.chosen {
		return
	}
	f := np.rp.frames
	x := pendingException{at: n.At, class: f.exception(n), count: n.Count, thread: t, whole: f.notified(n)}
	x.stack = slices.Clone(f.stack)
	for i := range n.record.Frames {
		x.functions = append(x.functions, clrsnap.FunctionID(n.record.Frames[i].Function))
	}
	x.functions = x.functions[len(x.functions)-len(x.stack):]
	if np.pending >= maxThrown {
		np.giveUp(&x, unknown)
		return
	}
	waiting := append(np.thrown[n.NSThreadID], x)
	if len(waiting) > maxPendingExceptions {
		np.giveUp(&waiting[0], unknown)
		waiting = waiting[1:]
	}
	np.waits(n.NSThreadID, waiting)
}

// waits sets the pending exceptions of a thread.
func (np *notifiedProcess) waits(tid int, waiting []pendingException) {
	np.pending += len(waiting) - len(np.thrown[tid])
	if len(waiting) == 0 {
		delete(np.thrown, tid)
		return
	}
	np.thrown[tid] = waiting
}

// catches settles the thread's last exception: n.Function catches it. If that is 0, the exception
// was thrown in a filter, and the runtime swallows it.
func (np *notifiedProcess) catches(n *notification) {
	waiting := np.thrown[n.NSThreadID]
	last := len(waiting) - 1
	if n.Function != 0 {
		// A catcher that is on no exception's stack catches one that was rethrown, which is not reported.
		for last >= 0 && !slices.Contains(waiting[last].functions, n.Function) {
			last--
		}
	}
	if last < 0 {
		return
	}
	for i := len(waiting) - 1; i > last; i-- {
		np.settled(&waiting[i], superseded, superseded)
	}
	if x := &waiting[last]; n.Function == 0 {
		np.settled(x, swallowed, swallowed)
	} else {
		np.caught(x, n.Function)
	}
	// An older exception that would have passed this handler may have been replaced: a finally
	// block has thrown. If notifications were lost, that cannot be told.
	lost := np.link.Counts()[events.ExceptionCatcherEnter].Dropped > 0
	for i := 0; i < last && !lost; i++ {
		x := &waiting[i]
		x.superseded = x.superseded || slices.Contains(x.functions, n.Function)
	}
	np.waits(n.NSThreadID, waiting[:last])
}

// caught adds the sample of an exception that a method on its stack catches. The method's frame
// nearest to the base is the method itself; the others are its filters.
func (np *notifiedProcess) caught(x *pendingException, by clrsnap.FunctionID) {
	i := len(x.functions) - 1
	for x.functions[i] != by {
		i--
	}
	_, f := np.e.r.b.At(x.stack[i])
	np.settled(x, "caught by "+f.Display, "caught by "+f.Short)
}

// settled adds the sample of an exception whose fate is known.
func (np *notifiedProcess) settled(x *pendingException, display, short string) {
	x.class.Display += ", " + display
	x.class.Short += ", " + short
	np.sample(x.at, x.thread, profile.Exception, float64(x.count), float64(x.count), x.class, x.stack, x.whole)
}

// giveUp adds the sample of an exception that was never reported as caught.
func (np *notifiedProcess) giveUp(x *pendingException, fate string) {
	if x.superseded {
		fate = superseded
	}
	np.settled(x, fate, fate)
}

// settle gives up exceptions that were thrown before a time and are still pending.
func (np *notifiedProcess) settle(before time.Duration, fate string) {
	for tid, waiting := range np.thrown {
		for len(waiting) > 0 && waiting[0].at <= before {
			np.giveUp(&waiting[0], fate)
			waiting = waiting[1:]
		}
		np.waits(tid, waiting)
	}
}
