package record

import (
	"cmp"
	"slices"
	"syscall"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/profile"
)

// thrownException is an exception from its first throw on, until it is clear what becomes of it: it can
// be caught and thrown again any number of times. Its sample has the time and the stack of the first
// throw.
type thrownException struct {
	at     time.Duration
	class  profile.Function // without the fate
	count  int64
	thread *recordedThread
	stack  []int32 // locations, leaf first, with what awaits async methods
	whole  bool

	object  uint64 // its address, when it was last heard of
	name    string // of its type, as the runtime says it
	message string
	first   clrsnap.FunctionID // the method that threw it first

	seen     bool          // its first throw was
	inFlight int           // on so many threads
	fate     string        // what the last handler or the end of a flight made of it
	caught   time.Duration // when the last handler began
	catches  int           // how many have begun
	handler  flight        // the flight that the last handler ended
	tid      int           // the thread of that
}

// flight is one throw of an exception, which waits to be caught.
type flight struct {
	x       *thrownException
	at      time.Duration
	stack   []int32 // locations, leaf first
	logical []logicalCaller
	// resumes: a method of the runtime's has caught it, which resumes another one with it, if that catches.
	resumes   bool
	functions []clrsnap.FunctionID // of these locations, as far as one of them can be reported to catch
	storer    int                  // so many frames, the last of which stores it in a task if none catches it; 0: none

	superseded bool // a handler that it would have reached has caught a later exception
}

// logicalCaller is the outermost method of a task in which the runtime resumes one.
type logicalCaller struct {
	below    int   // index in flight.stack before which it belongs
	location int32 // below 0: it is the one that is resumed
}

// exceptionPatience is how long to wait for the notification that an exception is caught. Filters
// and finally blocks run before it, and can take long.
const exceptionPatience = 10 * time.Second

// rethrowPatience is how long to wait until an exception that was caught is thrown again, as by an
// await of the task that it ended.
const rethrowPatience = 30 * time.Second

// What becomes of an exception that is not caught, as far as is known.
const (
	uncaught   = "not caught" // and so it has ended the process
	swallowed  = "swallowed by a filter"
	superseded = "replaced by another exception"
	inFlight   = "still in flight when the recording ended"
	overtaken  = "still in flight when the process ended"
	unknown    = "fate unknown"
)

// unseenThrow precedes the fate of an exception that had been thrown before it was first seen.
const unseenThrow = "rethrown, first throw not seen, "

// maxPendingExceptions bounds the pending exceptions of one thread. There is more than one if
// another is thrown before the first is caught: by a filter or a finally block.
const maxPendingExceptions = 64

// maxThrown bounds the pending exceptions of all threads of a process. A hostile process can
// report any number.
const maxThrown = 1 << 13

// maxCaught bounds the exceptions of a process that were caught and may be thrown again.
const maxCaught = 1 << 12

// throws records an exception that is in flight from now on.
func (np *notifiedProcess) throws(n *notification) {
	again := n.Event == events.ExceptionRethrown
	var x *thrownException
	if again {
		np.e.rethrows++
		x = np.thrownBefore(n)
	}
	if x == nil {
		if np.e.o.ExceptionEvery > 1 && again {
			return // it was not chosen; only its address is that of one that was
		}
		np.arrived[profile.Exception]++
	}
	t := np.thread(n)
	if !t.chosen && x == nil {
		return
	}
	f := flight{x: x, at: n.At}
	whole := np.rp.frames.notified(n)
	f.stack = slices.Clone(np.rp.frames.stack)
	for _, at := range np.rp.frames.awaits.at {
		outermost := int32(-1)
		if at.together > 0 {
			outermost = at.locations[at.together-1]
		}
		f.logical = append(f.logical, logicalCaller{at.below, outermost})
	}
	for i := range n.record.Frames {
		f.functions = append(f.functions, clrsnap.FunctionID(n.record.Frames[i].Function))
	}
	f.functions = f.functions[len(f.functions)-len(f.stack):]
	np.findStorer(&f)
	if x == nil {
		f.x = &thrownException{
			at: n.At, class: np.rp.frames.exception(n), count: n.Count, thread: t, whole: whole,
			stack: slices.Clone(np.rp.frames.complete),
			name:  n.ClassName, message: n.Message, first: firstMethod(n), seen: !again,
		}
		np.e.messages.add(f.x.class, n)
	}
	f.x.object = n.Object
	f.x.inFlight++
	np.fly(n.NSThreadID, f)
}

// firstMethod is the managed method that has thrown an exception first.
func firstMethod(n *notification) clrsnap.FunctionID {
	if f := n.record.First.Function; f != 0 {
		return clrsnap.FunctionID(f)
	}
	for i := range n.record.Frames {
		if f := n.record.Frames[i].Function; f != 0 {
			return clrsnap.FunctionID(f)
		}
	}
	return 0
}

// fly adds a flight to those of a thread.
func (np *notifiedProcess) fly(tid int, f flight) {
	if np.pending >= maxThrown {
		np.gaveUp = true
		np.lands(&f, unknown)
		return
	}
	waiting := append(np.thrown[tid], f)
	if len(waiting) > maxPendingExceptions {
		np.giveUp(&waiting[0], unknown)
		waiting = waiting[1:]
	}
	np.waits(tid, waiting)
}

// waits sets the pending exceptions of a thread.
func (np *notifiedProcess) waits(tid int, waiting []flight) {
	np.pending += len(waiting) - len(np.thrown[tid])
	if len(waiting) == 0 {
		delete(np.thrown, tid)
		return
	}
	np.thrown[tid] = waiting
}

// thrownBefore finds the exception that a notification says is thrown again. Its object has the address
// that it had when it was last heard of, unless the garbage collector has moved it. Then it is the
// oldest one of the same type, the same message and the same first throw: exceptions that
// are equal in all that come to the same sum, whichever is taken for which.
func (np *notifiedProcess) thrownBefore(n *notification) *thrownException {
	var moved *thrownException
	first := clrsnap.FunctionID(n.record.First.Function)
	equal := func(x *thrownException) bool { return x.name == n.ClassName && x.message == n.Message }
	for _, c := range slices.Backward(np.caught) {
		x := c.x
		// "throw e;" takes the exception's memory of its first throw away, but comes from a handler.
		candidate := x.first == first || first == 0 && x.tid == n.NSThreadID
		switch {
		case x.catches != c.catches || x.object != n.Object && !candidate || !equal(x):
		case x.object == n.Object:
			return x
		default:
			moved = x
		}
	}
	for tid, waiting := range np.thrown {
		for i := range waiting {
			if x := waiting[i].x; x.object == n.Object && equal(x) {
				np.storedAt(tid, i)
				return x
			}
		}
	}
	return cmp.Or(np.storedMoved(equal, first), moved)
}

// catches settles a flight: n.Function catches its exception. If that is 0, the exception was thrown
// in a filter, and the runtime swallows it.
func (np *notifiedProcess) catches(n *notification) {
	waiting := np.thrown[n.NSThreadID]
	last := np.caughtOf(waiting, n)
	if last < 0 {
		np.rethrown(n)
		return
	}
	for i := len(waiting) - 1; i > last; i-- {
		np.landsOrStored(&waiting[i], superseded)
	}
	if f := &waiting[last]; n.Function == 0 {
		np.landsOrStored(f, swallowed)
	} else {
		np.handles(f, n)
	}
	// An older exception that would have passed this handler may have been replaced: a finally
	// block has thrown. If notifications were lost, that cannot be told.
	lost := np.link.Counts()[events.ExceptionCatcherEnter].Dropped > 0
	for i := 0; i < last && !lost; i++ {
		f := &waiting[i]
		handlers := f.functions[:cmp.Or(f.storer, len(f.functions))]
		f.superseded = f.superseded || slices.Contains(handlers, n.Function)
	}
	np.waits(n.NSThreadID, waiting[:last])
}

// caughtOf returns the index of the flight that a handler ends; below 0: of none. A handler that is on no
// flight's stack is that of an exception which "throw;" has thrown again, and that is not reported.
func (np *notifiedProcess) caughtOf(waiting []flight, n *notification) int {
	last := len(waiting) - 1
	if n.Function == 0 {
		return last
	}
	if n.Rethrown {
		return -1
	}
	reached := func(f *flight) bool { return slices.Contains(f.functions, n.Function) }
	for i := last; i >= 0 && n.Object != 0; i-- {
		if f := &waiting[i]; f.x.object == n.Object && reached(f) {
			return i
		}
	}
	if n.Object != 0 && np.handledBefore(n, true) != nil {
		return -1
	}
	for last >= 0 && !reached(&waiting[last]) {
		last--
	}
	return last
}

// handledBefore returns the exception that a handler of this thread has thrown again with "throw;", and that
// n.Function catches. It is the newest one with n.Object; or, if exact is false, with any address: the
// garbage collector may have moved it.
func (np *notifiedProcess) handledBefore(n *notification, exact bool) *thrownException {
	for _, c := range slices.Backward(np.caught) {
		x := c.x
		if x.catches == c.catches && x.tid == n.NSThreadID && (x.object == n.Object || !exact) &&
			(x.handler.resumes || slices.Contains(x.handler.functions, n.Function)) {
			return x
		}
	}
	return nil
}

// rethrown has n.Function catch what the thread's last handler has thrown again with "throw;".
func (np *notifiedProcess) rethrown(n *notification) {
	x := np.handledBefore(n, true)
	if x == nil && n.Rethrown {
		x = np.handledBefore(n, false)
	}
	if x == nil {
		return // it was thrown before the recording began
	}
	np.e.rethrows += x.count
	x.inFlight++
	f := x.handler
	np.handles(&f, n)
}

// handles ends a flight: n.Function, which is on its stack, catches the exception. The method's frame nearest to
// the base is the method itself; the others are its filters.
func (np *notifiedProcess) handles(f *flight, n *notification) {
	i := len(f.functions) - 1
	for i >= 0 && f.functions[i] != n.Function {
		i--
	}
	x := f.x
	by := unknownMethod
	f.resumes = i >= 0 && session.ResumesMethods(np.function(f.stack[i]).Method)
	if f.resumes { // each call of it catches everything
		i = slices.Index(f.functions, n.Function)
	}
	if i >= 0 {
		by = np.handler(f, i)
	} else if m, err := np.rp.p.Method(arch.Addr(n.Function)); err == nil && !session.ResumesMethods(m.Exact) {
		by = m.Display // the stack was cut before it
	}
	x.fate = profile.CaughtBy + by
	if n.Object != 0 {
		x.object = n.Object
	}
	x.inFlight--
	x.catches++
	x.caught, x.tid, x.handler = n.At, n.NSThreadID, *f
	np.caught = append(np.caught, caughtException{x, x.catches})
	np.forget(n.At-rethrowPatience, maxCaught)
}

// handler names the method of a frame that catches. A method of the runtime's own that resumes async methods ends the
// task with the exception if none of them catches it: then it names the outermost one. If that is not known, the task
// can be that of a method which awaits the one that was resumed. The handlers of state machines, which compilers write,
// do the same.
func (np *notifiedProcess) handler(f *flight, i int) string {
	if !f.resumes {
		return np.function(f.stack[i]).Display
	}
	resumed := i - 1
	for resumed >= 0 && session.LiesBetween(np.function(f.stack[resumed]).Method) {
		resumed--
	}
	known := false
	for _, c := range f.logical {
		if c.below <= resumed || c.below > i {
			continue
		}
		if c.location >= 0 {
			return np.function(c.location).Display
		}
		known = true
	}
	if resumed < 0 {
		return unknownMethod
	}
	by := np.function(f.stack[resumed]).Display
	if !known {
		by += profile.LikelyCatcher
	}
	return by
}

// function is the function of a location.
func (np *notifiedProcess) function(location int32) profile.Function {
	_, fn := np.e.r.b.At(location)
	return fn
}

const unknownMethod = "an unknown method"

// caughtException is an entry of the list of exceptions that were caught. It is void once the
// exception has been caught once more.
type caughtException struct {
	x       *thrownException
	catches int
}

// forget adds the samples of exceptions that were caught before a time, and of the oldest ones if there
// are more than most.
func (np *notifiedProcess) forget(before time.Duration, most int) {
	if len(np.caught) > most {
		np.caught = slices.DeleteFunc(np.caught, func(c caughtException) bool { return c.x.catches != c.catches })
		most -= most / 4 // so that this is rare
	}
	for len(np.caught) > 0 {
		c := np.caught[0]
		if current := c.x.catches == c.catches; current && c.x.caught > before && len(np.caught) <= most {
			break
		} else if current && c.x.inFlight == 0 {
			np.settled(c.x)
		}
		np.caught = np.caught[1:]
	}
}

// lands ends a flight of an exception that is not caught.
func (np *notifiedProcess) lands(f *flight, fate string) {
	x := f.x
	x.fate = fate
	x.catches++ // it is no longer one that was caught
	if x.inFlight--; x.inFlight == 0 {
		np.settled(x)
	}
}

// settled adds the sample of an exception.
func (np *notifiedProcess) settled(x *thrownException) {
	x.class.Fate = x.fate
	if !x.seen {
		x.class.Fate = unseenThrow + x.fate
	}
	np.sample(x.at, x.thread, profile.Exception, float64(x.count), float64(x.count), x.class, x.stack, x.whole)
}

// giveUp ends a flight whose end was never reported.
func (np *notifiedProcess) giveUp(f *flight, fate string) {
	if f.superseded {
		fate = superseded
	}
	if !np.landsOrStored(f, fate) {
		np.gaveUp = true
	}
}

// fatal settles the exception that has ended the process, if it is known which one has: the process was
// aborted, which is what the runtime does then, and one exception alone was in flight. An
// exception that has passed all handlers is reported by nobody.
func (np *notifiedProcess) fatal() {
	np.storeAll()
	if len(np.thrown) != 1 || !np.complete() || !np.rp.p.Live.WaitExit(exitPatience) ||
		np.rp.p.Live.EndedBy() != syscall.SIGABRT {
		return
	}
	for tid, waiting := range np.thrown {
		last := len(waiting) - 1 // those before it had a handler, or their finally blocks would not have run
		if !waiting[last].superseded {
			np.lands(&waiting[last], uncaught)
			np.waits(tid, waiting[:last])
		}
	}
}

// exitPatience is how long to wait for the end of a process whose agent has hung up.
const exitPatience = 250 * time.Millisecond

// complete reports whether all exceptions of the process that were in flight are pending.
func (np *notifiedProcess) complete() bool {
	counts := np.link.Counts()
	return np.e.o.ExceptionEvery <= 1 && !np.gaveUp && np.e.r.o.Threads == nil &&
		counts[events.ExceptionThrown].Dropped == 0 && counts[events.ExceptionRethrown].Dropped == 0 &&
		counts[events.ExceptionCatcherEnter].Dropped == 0
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
