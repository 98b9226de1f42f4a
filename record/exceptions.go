package record

import (
	"cmp"
	"slices"
	"syscall"
	"time"

	"clrsnap"
	"clrsnap/events"
	"clrsnap/internal/arch"
	"clrsnap/internal/awaits"
	"clrsnap/profile"
)

// thrownException is an exception from its first throw until its fate is clear: the exception can be
// caught and thrown again any number of times. Its sample has the time and the stack of the first
// throw.
type thrownException struct {
	at     time.Duration
	class  profile.Function // without the fate
	count  int64
	thread *recordedThread
	stack  []int32 // locations, leaf first, with the awaiting methods of async methods
	whole  bool

	object  uint64 // the latest known address
	name    string // of the type, as the runtime says it
	message string
	first   clrsnap.FunctionID // the method of the first throw

	seen     bool          // whether the first throw was seen
	inFlight int           // on so many threads
	fate     string        // the outcome of the last handler or of the end of a flight
	caught   time.Duration // when the last handler began
	catches  int           // how many handlers have begun
	handler  flight        // the flight that the last handler ended
	tid      int           // the thread of the last handler
}

// flight is one throw of an exception that waits to be caught.
type flight struct {
	x       *thrownException
	at      time.Duration
	stack   []int32 // locations, leaf first
	logical []logicalCaller
	// resumes: a method of the runtime's own has caught the exception, and resumes another method with the
	// exception, in case the resumed method catches it.
	resumes   bool
	functions []clrsnap.FunctionID // of these locations, up to the last frame with a reportable handler
	storer    int                  // so many frames; the last one stores an uncaught exception in a task; 0: none

	superseded bool // a handler on the way of this flight has caught a later exception
}

// logicalCaller is the outermost method of a task in which the runtime resumes a method.
type logicalCaller struct {
	below    int   // the caller stands before this index in flight.stack
	location int32 // below 0: the caller is the resumed method
}

// exceptionPatience is how long to wait for the notification that an exception is caught. Filters and
// finally blocks run before the notification, and can take long.
const exceptionPatience = 10 * time.Second

// rethrowPatience is how long to wait until a caught exception is thrown again, as by an await of a
// task that ended with the exception.
const rethrowPatience = 30 * time.Second

// The fates of exceptions that are not caught, as far as they are known.
const (
	uncaught   = "not caught" // and so the exception has ended the process
	swallowed  = "swallowed by a filter"
	superseded = "replaced by another exception"
	inFlight   = "still in flight when the recording ended"
	overtaken  = "still in flight when the process ended"
	unknown    = "fate unknown"
)

// maxPendingExceptions bounds the pending exceptions of one thread. A thread has several if a filter
// or a finally block throws another exception before the first exception is caught.
const maxPendingExceptions = 64

// maxThrown bounds the pending exceptions of all threads of a process. A hostile process can
// report any number.
const maxThrown = 1 << 13

// maxCaught bounds the caught exceptions of a process that may be thrown again.
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
			return // the exception was not chosen; only its address is the address of a chosen exception
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

// firstMethod is the managed method of an exception's first throw.
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

// thrownBefore finds the exception that is thrown again, according to a notification. Its object has
// the latest known address, unless the garbage collector has moved the object. Then the exception is
// the oldest exception with the same type, the same message and the same first throw: between
// exceptions that agree in all three, a mix-up changes no sum.
func (np *notifiedProcess) thrownBefore(n *notification) *thrownException {
	var moved *thrownException
	first := clrsnap.FunctionID(n.record.First.Function)
	equal := func(x *thrownException) bool { return x.name == n.ClassName && x.message == n.Message }
	for _, c := range slices.Backward(np.caught) {
		x := c.x
		// "throw e;" makes the exception forget its first throw, but comes from a handler.
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

// catches settles a flight: n.Function catches its exception. If n.Function is 0, the exception was
// thrown in a filter, and the runtime swallows the exception.
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
	// An older exception whose flight would have passed this handler may have been replaced: a finally
	// block has thrown. If notifications were lost, a replacement cannot be told.
	lost := np.link.Counts()[events.ExceptionCatcherEnter].Dropped > 0
	for i := 0; i < last && !lost; i++ {
		f := &waiting[i]
		handlers := f.functions[:cmp.Or(f.storer, len(f.functions))]
		f.superseded = f.superseded || slices.Contains(handlers, n.Function)
	}
	np.waits(n.NSThreadID, waiting[:last])
}

// caughtOf returns the index of the flight that a handler ends; below 0: the handler ends no flight. A
// handler on no flight's stack belongs to an exception that "throw;" has thrown again; the runtime
// does not report "throw;".
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

// handledBefore returns the exception that a handler of this thread has thrown again with "throw;",
// and that n.Function catches. The exception is the newest exception with n.Object; if exact is false,
// with any address, because the garbage collector may have moved the object.
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

// rethrown has n.Function catch the exception that the thread's last handler has thrown again with
// "throw;".
func (np *notifiedProcess) rethrown(n *notification) {
	x := np.handledBefore(n, true)
	if x == nil && n.Rethrown {
		x = np.handledBefore(n, false)
	}
	if x == nil {
		return // the exception was thrown before the recording began
	}
	np.e.rethrows += x.count
	x.inFlight++
	f := x.handler
	np.handles(&f, n)
}

// handles ends a flight: n.Function, which is on its stack, catches the exception. The method's frame
// nearest to the base is the method itself; the other frames are its filters.
func (np *notifiedProcess) handles(f *flight, n *notification) {
	i := len(f.functions) - 1
	for i >= 0 && f.functions[i] != n.Function {
		i--
	}
	x := f.x
	by := unknownMethod
	f.resumes = i >= 0 && awaits.ResumesMethods(np.function(f.stack[i]).Method)
	if f.resumes { // each call of the method catches everything
		i = slices.Index(f.functions, n.Function)
	}
	if i >= 0 {
		by = np.handler(f, i)
	} else if m, err := np.rp.p.Method(arch.Addr(n.Function)); err == nil && !awaits.ResumesMethods(m.Exact) {
		by = m.Display // the stack was cut before the method
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

// handler names the method of a frame that catches. If the frame is a method of the runtime's own that
// resumes async methods, the task ends with the exception when no async method catches it: handler
// names the outermost async method. If the outermost method is not known, the task can belong to a
// method that awaits the resumed method. The handlers of state machines, which compilers write, do the
// same.
func (np *notifiedProcess) handler(f *flight, i int) string {
	if !f.resumes {
		return np.function(f.stack[i]).Display
	}
	resumed := i - 1
	for resumed >= 0 && awaits.LiesBetween(np.function(f.stack[resumed]).Method) {
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

func (np *notifiedProcess) function(location int32) profile.Function {
	_, fn := np.e.r.b.At(location)
	return fn
}

const unknownMethod = "an unknown method"

// caughtException is an entry of the list of caught exceptions. The entry is void once the exception
// has been caught once more.
type caughtException struct {
	x       *thrownException
	catches int
}

// forget adds the samples of exceptions that were caught before a time, and of the oldest exceptions
// if there are more than most.
func (np *notifiedProcess) forget(before time.Duration, most int) {
	if len(np.caught) > most {
		np.caught = slices.DeleteFunc(np.caught, func(c caughtException) bool { return c.x.catches != c.catches })
		most -= most / 4 // so that deletions are rare
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
	x.catches++ // the exception no longer counts as caught
	if x.inFlight--; x.inFlight == 0 {
		np.settled(x)
	}
}

// settled adds the sample of an exception.
func (np *notifiedProcess) settled(x *thrownException) {
	x.class.Fate = x.fate
	if !x.seen {
		x.class.Fate = profile.UnseenThrow + x.fate
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

// fatal settles the exception that has ended the process, if that exception is known: the process was
// aborted, as the runtime does for an uncaught exception, and exactly one exception was in flight.
// Nobody reports an exception that has passed all handlers.
func (np *notifiedProcess) fatal() {
	np.storeAll()
	if len(np.thrown) != 1 || !np.complete() || !np.rp.p.Live.WaitExit(exitPatience) ||
		np.rp.p.Live.EndedBy() != syscall.SIGABRT {
		return
	}
	for tid, waiting := range np.thrown {
		last := len(waiting) - 1 // the exceptions before had a handler, or their finally blocks would not have run
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
