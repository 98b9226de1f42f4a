package record

import (
	"clrsnap"
	"slices"
	"time"

	"clrsnap/events"
	"clrsnap/profile"
)

// pendingException is an exception of which it is not known yet who catches it.
type pendingException struct {
	at        time.Duration
	class     profile.Function
	count     int64
	thread    *recordedThread
	stack     []int32              // locations, leaf first
	functions []clrsnap.FunctionID // likewise
	whole     bool

	superseded bool // another one that was thrown later has been caught where it would have passed
}

// exceptionPatience is how long an exception waits for the one who catches it. Filters
// and finally blocks run meanwhile, which may take their time.
const exceptionPatience = 10 * time.Second

// What becomes of an exception that is not caught, as far as is known.
const (
	uncaught   = "not caught"
	swallowed  = "swallowed by a filter"
	superseded = "replaced by another exception"
	inFlight   = "not caught yet"
	unknown    = "fate unknown"
)

// maxPendingExceptions bounds what waits for one thread: exceptions that are thrown
// while a handler for another one is being looked for.
const maxPendingExceptions = 64

// maxThrown bounds what waits for all threads of a process together, of which a hostile one
// can report any number.
const maxThrown = 1 << 13

// throws takes notice of an exception.
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

// waits notes which exceptions of a thread are waiting.
func (np *notifiedProcess) waits(tid int, waiting []pendingException) {
	np.pending += len(waiting) - len(np.thrown[tid])
	if len(waiting) == 0 {
		delete(np.thrown, tid)
		return
	}
	np.thrown[tid] = waiting
}

// catches takes notice of the method that catches the thread's last exception, or
// of its having been thrown in a filter, which nobody hears of.
func (np *notifiedProcess) catches(n *notification) {
	waiting := np.thrown[n.NSThreadID]
	last := len(waiting) - 1
	if n.Function != 0 {
		// One that is not on the stack of any catches something that was thrown again.
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
	// What was in flight below, and would have had to pass here, may be gone: a finally
	// block has thrown. Where notifications were lost nobody knows.
	lost := np.link.Counts()[events.ExceptionCatcherEnter].Dropped > 0
	for i := 0; i < last && !lost; i++ {
		x := &waiting[i]
		x.superseded = x.superseded || slices.Contains(x.functions, n.Function)
	}
	np.waits(n.NSThreadID, waiting[:last])
}

// caught adds the sample of an exception that a method on its stack catches. Nearest
// to the base it is the method itself, and not one of its filters.
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

// giveUp adds the sample of an exception of which nothing was heard any more.
func (np *notifiedProcess) giveUp(x *pendingException, fate string) {
	if x.superseded {
		fate = superseded
	}
	np.settled(x, fate, fate)
}

// settle gives up waiting for who catches exceptions that were thrown before a
// time.
func (np *notifiedProcess) settle(before time.Duration, fate string) {
	for tid, waiting := range np.thrown {
		for len(waiting) > 0 && waiting[0].at <= before {
			np.giveUp(&waiting[0], fate)
			waiting = waiting[1:]
		}
		np.waits(tid, waiting)
	}
}
