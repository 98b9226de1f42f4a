// Package waits finds out what a captured thread waits for, and what the thread holds: the lock,
// event, semaphore, task or thread, its class, and its holder.
//
// Certain facts come first. The runtime keeps a list of threads blocked on monitors, for debuggers
// (lock.Blocked). Most of .NET's primitives are made of monitors. The managed frames show the
// primitive that the program called. An object on the stack is proved to be the primitive by its
// parts: a SemaphoreSlim refers to the object whose monitor the thread waits for, a
// BlockingCollection to the SemaphoreSlim, a Task to the event that the Task will set.
//
// From .NET 11 on all waits are managed code, and the thread's own managed objects describe the
// wait (byobjects.go, subsystem.go). The frames only name the primitive around the awaited object,
// and the object of the program.
//
// Lock, ReaderWriterLockSlim, Thread.Join and handles are not made of monitors. There the object
// must be the only object of its class in the frames of the primitive, and in a state in which
// threads wait for it. If there are several candidates, the wait has no object. Frames also have
// stale references to places from which the collector has moved an object: an address without an
// object of the heap (package heap) does not count.
//
// The program runs on during the reads. All memory that a statement rests on, the waiting thread's
// stack included, is kept (target.Evidence) and read again. If the memory has changed, or if the
// collector moved objects meanwhile, everything is read anew, a few times. If the thread has run
// meanwhile, the thread is captured again, as long as the thread waits in the same calls.
package waits

import (
	"bytes"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/lock"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Subject is a captured thread.
type Subject struct {
	Frames []snapshot.Frame // leaf first
	Stack  *target.Stack    // with lock.Store.BlockingRange
	Thread thread.Thread
	// Blocked: the thread was blocked when the stack was copied.
	Blocked bool
	// Still reports whether the thread has certainly not run since. nil, or false: unknown.
	Still func() bool
	// Again copies the stack once more of a thread that has run since. nil: no copy is possible, or
	// the thread is not blocked in the very same calls.
	Again func() *target.Stack
}

// Reader explains the waits of one runtime's threads. A Reader is not safe for concurrent use.
type Reader struct {
	Managed *clr.Managed
	Runtime *clr.Runtime // of CoreCLR; nil: names of fields and the meaning of objects are not known
	People  People
	// Live is the target's current memory. nil: the target does not run.
	Live target.Memory
	// File describes an operation on a descriptor of the target. nil: descriptors are unknown.
	File func(verb string, fd int32) string
	// Renew is called before memory is read once more. Renew drops the memory from caches.
	Renew func()

	queue    arch.Addr // see Queue
	slot     arch.Addr // the highest stack slot that tells what the thread waits for; 0: none does
	localAt  int       // offset of the statics in a Thread: see readers.go; 0: not known yet
	searches int       // searches for localAt since the latest LockNumber
	looked   int       // references examined since the latest readCounts
	found    candidates
	searched bool // isObject has been called
	unknown  bool // whether some address has an object is unknown
	renewed  bool // not the first reading
	calm     bool // no objects were being moved at the latest begin
	ends     ends
	queues   map[arch.Addr]queue // by the first item
	now      []byte              // buffer to compare a stack with: see still
}

const maxTries = 6

// Wait explains the wait of a thread; nil: unknown, or the thread runs.
func (r *Reader) Wait(s *Subject) *snapshot.Wait {
	if s.Thread.Address == 0 || r.Managed == nil || r.Managed.Locks == nil {
		return nil
	}
	r.queue, r.slot = 0, 0
	p := classify(s.Frames)
	_, blocked := r.Managed.Locks.Blocked(s.Thread.Address, s.Stack)
	if p.kind == "" && !blocked && !r.Managed.Locks.Managed() {
		if _, ok := r.inNative(s, p); !ok {
			return nil
		}
	}
	var e explanation
	explain := func(fields []found) bool {
		return r.steadily(func() error {
			e = explanation{r: r, s: s, p: p, fields: fields}
			e.blocking, e.blocked = r.Managed.Locks.Blocked(s.Thread.Address, s.Stack)
			return e.run()
		}, s, p)
	}
	stands := explain(nil)
	if e.w.Object == 0 && hasParts[e.w.Kind] {
		if fields := r.inFields(s, r.caller(s, p)); len(fields) > 0 {
			stands = explain(fields)
		}
	}
	w := &e.w
	if w.Kind == "" || e.later && !stands {
		return nil
	}
	if w.Certain = stands && !e.p.guess && !r.unknown; !stands {
		Doubt(w)
	}
	r.nameFields(s, r.caller(s, p), w)
	return w
}

// Doubt makes a wait uncertain: everything that changes is left out.
func Doubt(w *snapshot.Wait) {
	w.Certain, w.Owner, w.Recursion, w.Waiters, w.Detail, w.Method, w.Field = false, nil, 0, 0, "", "", ""
	w.Of = ""
	w.Readers, w.Behind, w.Tasks = nil, nil, nil
}

// Queue returns the task by which the thread of the last Wait stands in the queue of a
// SemaphoreSlim, if nothing on the thread's stack identifies the semaphore; 0: there is no such
// task.
func (r *Reader) Queue() arch.Addr { return r.queue }

// RestsOn returns the memory that the last Wait rests on. If a lock's owner stands still, and the
// memory is unchanged, the owner still holds the lock.
func (r *Reader) RestsOn() []target.Region { return r.Managed.Seen.Pieces() }

// settled reports whether no objects are being moved now. Where the heap is not known, nothing on a
// stack counts as an object, and settled is true.
func (r *Reader) settled() bool { return !r.Managed.Heap.Known() || r.Managed.Heap.Settled(r.Live) }

// steadily repeats read until a second look finds all memory that read has used unchanged. s may be
// nil: then read rests on no stack.
func (r *Reader) steadily(read func() error, s *Subject, p primitive) bool {
	seen := r.Managed.Seen
	defer seen.End()
	for try := 0; ; try++ {
		r.begin()
		r.renewed = try > 0
		seen.Begin()
		err := read()
		seen.End()
		if r.Live == nil {
			return err == nil
		}
		if err == nil && r.calm && r.same(s, p) && seen.Stands(r.Live) && r.unmoved() {
			return true
		}
		if try == maxTries || seen.Full() {
			return false
		}
		if r.Renew != nil {
			r.Renew()
		}
		r.copyAgain(s, p)
	}
}

// copyAgain copies the stack of a thread once more. If the thread has not run since, the collector
// may have moved objects and changed the references. If the thread has run, the thread may wait in
// the same calls again.
func (r *Reader) copyAgain(s *Subject, p primitive) {
	from, to, ok := r.compared(s, p)
	if !ok || s.Still == nil {
		return
	}
	if !s.Still() {
		if s.Again == nil {
			return
		}
		if again := s.Again(); again != nil {
			s.Stack = again
		}
		return
	}
	stack := *s.Stack
	stack.Data = slices.Clone(stack.Data)
	if r.Live.ReadMemory(stack.Data[from:to], stack.Base+arch.Addr(from)) == nil && s.Still() {
		s.Stack = &stack
	}
}

// begin begins a search for objects.
func (r *Reader) begin() {
	r.searched, r.unknown = false, false
	_ = r.Managed.Heap.Begin(r.Live) // without the heap nothing on a stack counts as an object
	r.calm = r.Managed.Heap.Calm() || !r.Managed.Heap.Known()
}

// unmoved reports whether no object can have been moved since begin, as far as the result rests on
// objects.
func (r *Reader) unmoved() bool {
	if r.searched {
		return r.Managed.Heap.Stands(r.Live)
	}
	return r.settled()
}

// same reports whether the thread's stack is unchanged since the copy, up to the caller of the
// primitive. The collector changes the stack even of a thread that has not run, by moving objects.
func (r *Reader) same(s *Subject, p primitive) bool {
	if s == nil {
		return true
	}
	from, to, ok := r.compared(s, p)
	return ok && r.still(s.Stack.Data[from:to], s.Stack.Base+arch.Addr(from))
}

// compared returns the part of a thread's stack that a wait rests on; false: the part was not
// copied.
func (r *Reader) compared(s *Subject, p primitive) (from, to int, ok bool) {
	if s == nil {
		return 0, 0, false
	}
	end, sp := r.end(s, p), arch.Addr(s.Frames[0].SP) // nothing lies below sp
	if r.slot != 0 {
		end = max(end, r.slot+8) // in the caller, if all else has been inlined there
	}
	if sp < s.Stack.Base || end < s.Stack.Base {
		return 0, 0, false
	}
	from, to = len(s.Stack.Data), len(s.Stack.Data)
	if n := sp - s.Stack.Base; n < arch.Addr(to) {
		from = int(n)
	}
	if n := end - s.Stack.Base; n < arch.Addr(to) {
		to = int(n)
	}
	return from, to, from <= to
}

// compareBytes is how much of a stack is compared at a time: all of most stacks.
const compareBytes = 32 << 10

// still reports whether memory is unchanged since the copy.
func (r *Reader) still(want []byte, at arch.Addr) bool {
	if r.now == nil {
		r.now = make([]byte, compareBytes)
	}
	for len(want) > 0 {
		now := r.now[:min(len(want), compareBytes)]
		if r.Live.ReadMemory(now, at) != nil || !bytes.Equal(now, want[:len(now)]) {
			return false
		}
		want, at = want[len(now):], at+arch.Addr(len(now))
	}
	return true
}

// end is the end of the stack of the primitive's frames, where the caller's stack begins.
func (r *Reader) end(s *Subject, p primitive) arch.Addr { return frameAt(s, r.caller(s, p)) }

// caller is the index of the frame that has called the primitive.
func (r *Reader) caller(s *Subject, p primitive) int {
	outer := p.outer
	if p.kind == "" && outer == 0 {
		outer = max(p.first-1, 0)
	}
	return outer + 1
}

// frameAt is where the stack of a frame begins, or the end of the copy.
func frameAt(s *Subject, i int) arch.Addr {
	if i < len(s.Frames) {
		return arch.Addr(s.Frames[i].SP)
	}
	return s.Stack.Base + arch.Addr(len(s.Stack.Data))
}

// explanation is one attempt to explain a wait.
type explanation struct {
	r        *Reader
	s        *Subject
	p        primitive
	blocking lock.Blocking
	blocked  bool
	fields   []found    // objects in fields of the callers: see inFields
	waiting  *subsystem // nil: not read yet
	w        snapshot.Wait
	later    bool // only objects read after the stack tell of the wait
}

func (e *explanation) run() error {
	e.w.Kind = e.p.kind
	switch {
	case e.blocked:
		return e.monitor(&monitorWait{
			enters: !e.blocking.Wait, timeout: timeout(e.blocking.Timeout),
			read: func() (lock.Monitor, error) { return e.r.Managed.Locks.At(e.blocking.Lock) },
		})
	case e.r.Managed.Locks.Managed():
		if done, err := e.byObjects(); done || err != nil {
			return err
		}
		if w, err := e.managedMonitor(); w != nil || err != nil {
			if err == nil {
				err = e.monitor(w)
			}
			return err
		}
	}
	switch e.p.kind {
	case "":
		return e.unseenJoin()
	case snapshot.LockEnter:
		return e.lock()
	case snapshot.ReadLock, snapshot.UpgradeableLock, snapshot.WriteLock:
		return e.readerWriter()
	case snapshot.ThreadJoin:
		return e.join()
	case snapshot.HandleOne:
		return e.handle()
	case snapshot.HandleAny, snapshot.HandleAll:
		return e.handles()
	}
	return nil
}

// timeout turns a timeout in ms into a duration.
func timeout(ms int32) time.Duration {
	if ms < 0 {
		return snapshot.Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// monitorWait describes a thread's block on a monitor.
type monitorWait struct {
	enters  bool // else the thread is in Monitor.Wait
	timeout time.Duration
	read    func() (lock.Monitor, error)
}

// monitor explains the wait of a thread blocked on a monitor.
func (e *explanation) monitor(b *monitorWait) error {
	if e.p.kind != snapshot.BarrierWait { // a Barrier waits again and again
		e.w.Timeout = b.timeout
	}
	if e.p.kind.OfTasks() && e.w.Timeout == snapshot.Forever && e.cancellable() {
		e.w.Timeout = 0 // the wait ends when the token is cancelled
	}
	if b.enters {
		e.w.Kind = snapshot.MonitorEnter
	} else if e.w.Kind == "" || e.w.Kind == snapshot.MonitorEnter {
		e.w.Kind = snapshot.MonitorWait
	}
	if !b.enters && e.w.Kind == snapshot.WaitIO {
		return e.socket()
	}
	m, err := b.read()
	if err != nil {
		return err
	}
	if !b.enters && e.w.Kind != snapshot.MonitorWait {
		return e.made(m)
	}
	if m.Object != 0 {
		if err := e.is(m.Object); err != nil {
			return err
		}
	}
	e.w.Lock = uint64(m.Block)
	if e.w.Recursion, e.w.Waiters = m.Recursion, m.Waiters; !b.enters {
		e.w.Recursion, e.w.Waiters = 0, m.Waiting
	}
	switch {
	case b.enters && m.Orphan:
		e.w.Owner, err = e.r.orphaned(&m)
	case b.enters && m.Owner != 0:
		e.w.Owner = e.r.owner(&m)
	}
	return err
}

// cancellable reports whether the frames of a wait have a CancellationTokenSource: the program may have passed a token.
func (e *explanation) cancellable() bool {
	return slices.ContainsFunc(e.inFrames(false), func(f found) bool {
		return f.class.Is(coreLib, cancellation) || f.class.Is(coreLib, cancellation+"+CallbackNode")
	})
}

// meaning returns the meaning of an object that stands for something else; "": none, or not known.
func (r *Reader) meaning(obj arch.Addr, c *object.Class) string {
	if r.Runtime == nil {
		return ""
	}
	return r.Runtime.Meaning(obj, c)
}

// is records the awaited object.
func (e *explanation) is(obj arch.Addr) error {
	c, err := e.r.Managed.Objects.Class(obj)
	if err != nil {
		return err
	}
	e.w.Object, e.w.Type, e.w.Of = uint64(obj), c.Display, e.r.meaning(obj, c)
	return nil
}
