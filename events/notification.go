package events

import (
	"fmt"
	"time"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/arch"
	"clrsnap/internal/bridge"
	"clrsnap/internal/session"
)

// Event is the subject of a Notification. An event with a function in ICorProfilerCallback has the
// function's name.
type Event uint8

// The events, and the fields of a Notification for each event, besides At and the thread. Events with
// a stack are marked with *.
const (
	// ObjectAllocated*: Class, Object, Size, Bytes, Objects.
	ObjectAllocated Event = iota + 1
	// ExceptionThrown*: ClassName, Class, Object, Message, Count. A repeated throw of an exception is
	// ExceptionRethrown; a repeated throw by "throw;" has no notification of its own.
	ExceptionThrown
	// ExceptionCatcherEnter: Function is the method whose handler begins, Object the exception. Rethrown:
	// "throw;" has thrown the exception again in the handler that began last on this thread. If Object is
	// 0, the handler is for the thread's last exception that was not caught yet. Function is 0 if that
	// exception was thrown in a filter: the runtime swallows the exception. The notification comes after
	// finally blocks have run. With Options.ExceptionEvery it comes only for reported exceptions. An
	// exception that is never caught ends the program.
	ExceptionCatcherEnter
	// LockContended*: Lock, Class, Owner, Waited. The wait is over: the thread has the lock.
	LockContended
	// ThreadStarting*: Other is the thread started by this thread.
	ThreadStarting
	// ThreadCreated: Other is the thread; it is about to run.
	ThreadCreated
	// ThreadDestroyed: Other is the thread. Its clrsnap.ThreadID may be used again. If a walk of the
	// thread is under way, the notification comes after the walk.
	ThreadDestroyed
	// GarbageCollectionTriggered*: Collection.Reason. The notification's thread triggered the collection.
	GarbageCollectionTriggered
	// GarbageCollectionStarted: Collection.
	GarbageCollectionStarted
	// GarbageCollectionFinished: Collection.Number, Collection.Generation.
	GarbageCollectionFinished
	// RuntimeSuspendStarted: Suspension, Collection.Number.
	RuntimeSuspendStarted
	// RuntimeSuspendFinished: all threads stand still.
	RuntimeSuspendFinished
	// RuntimeResumeFinished: all threads may run again.
	RuntimeResumeFinished
	// ExceptionRethrown*: as ExceptionThrown. The object was thrown before: await and
	// ExceptionDispatchInfo.Throw throw the object again, or "throw e;" in a handler for the object. If an
	// object is thrown anew outside its handlers ("throw stored;"), the event is ExceptionThrown. With
	// Options.ExceptionEvery the notification comes only for reported exceptions.
	ExceptionRethrown
	// ThreadWaited*: Waited, WaitedFor, Class. The thread was blocked, and is no longer: the wait has
	// succeeded, or the timeout is over. The frames show the primitive. Sleeps, and waits for input and
	// output, are not reported, and from .NET 11 on Thread.Join is not reported. Before .NET 9 there are
	// no such notifications.
	ThreadWaited
)

var eventNames = [...]string{
	ObjectAllocated: "ObjectAllocated", ExceptionThrown: "ExceptionThrown",
	ExceptionCatcherEnter: "ExceptionCatcherEnter", LockContended: "LockContended", ThreadStarting: "ThreadStarting",
	ThreadCreated: "ThreadCreated", ThreadDestroyed: "ThreadDestroyed",
	GarbageCollectionTriggered: "GarbageCollectionTriggered",
	GarbageCollectionStarted:   "GarbageCollectionStarted", GarbageCollectionFinished: "GarbageCollectionFinished",
	RuntimeSuspendStarted: "RuntimeSuspendStarted", RuntimeSuspendFinished: "RuntimeSuspendFinished",
	RuntimeResumeFinished: "RuntimeResumeFinished", ExceptionRethrown: "ExceptionRethrown",
	ThreadWaited: "ThreadWaited",
}

func (e Event) String() string {
	if int(e) < len(eventNames) && eventNames[e] != "" {
		return eventNames[e]
	}
	return fmt.Sprintf("event %d", uint8(e))
}

// Notification is a report of the runtime to its profiler, with the thread's stack at that moment.
// Fields outside the event are zero: see the constants of Event.
type Notification struct {
	Event      Event
	At         time.Duration    // time of CLOCK_MONOTONIC
	Thread     clrsnap.ThreadID // the thread of the notification; 0: the runtime does not know the thread
	NSThreadID int              // thread id of the same thread, in the target's PID namespace

	Class   clrsnap.ClassID
	Object  uint64  // ObjectID of the allocated, thrown or caught object: its address until the next collection
	Size    uint64  // of the object, in bytes
	Bytes   float64 // allocated bytes for which this notification stands
	Objects float64 // allocated objects for which this notification stands
	Count   int64   // exceptions for which this notification stands

	// ClassName is the type of an exception, with its namespace; at most the first 256 characters. For a
	// nested type, ClassName is the type's own name alone. Class is the type of the exception object found
	// on the thread, if the type has that name; else 0. For a lock, Class is the type of the locked
	// object; 0 if the type is not known. For a wait see WaitedFor.
	ClassName string
	// Message is the message with which an exception was constructed, at most its first 256 UTF-16 units;
	// empty if the exception was constructed without a message, and with Options.NoMessages. A type can
	// show another message: its property Message is not called. Messages can contain secrets.
	Message string
	// MessageCut: the exception's message is longer.
	MessageCut bool
	Rethrown   bool

	Function clrsnap.FunctionID
	Lock     uint64        // identifies the lock
	Owner    int           // NSThreadID of the thread that held the lock when the wait began; 0: unknown
	Waited   time.Duration // how long the thread waited
	Other    clrsnap.ThreadID
	// WaitedFor says, in a ThreadWaited, which object's type Class is.
	WaitedFor WaitedFor

	Collection Collection
	Suspension SuspendReason

	// Held: the thread is held in the callback, because of Options.Hold, until
	// Subscription.Release.
	Held bool

	p      *session.Process
	record agent.Record
}

// WaitedFor is the known information about the object of a wait.
type WaitedFor uint8

// The values. Class may be 0 all the same: the object has moved meanwhile.
const (
	// WaitedForOther: only the frames show the primitive, and Class is 0.
	WaitedForOther WaitedFor = iota
	// WaitedForPulse: Class is the type of the object whose monitor the thread waited for (Monitor.Wait).
	// Some primitives are made of such objects, and then Class is a type of the primitive's.
	WaitedForPulse
	// WaitedForLock: Class is the type of the locked object.
	WaitedForLock
	// WaitedForHandle: Class is the type of the only WaitHandle of the wait. Before .NET 11 waits for
	// handles are WaitedForOther.
	WaitedForHandle
)

// Collection is a garbage collection.
type Collection struct {
	Number     int // counts collections since the start of the runtime
	Generation int // the oldest collected generation
	Reason     CollectionReason
	Type       CollectionType
}

// CollectionReason is why there is a garbage collection (gc.h, gc_reason).
type CollectionReason uint32

var collectionReasons = [...]string{
	"allocation", "induced", "low memory", "empty", "large-object allocation", "out of space",
	"out of space for large objects", "induced, not forced", "stress", "low memory, blocking", "induced, compacting",
	"low memory of the host", "before a full collection", "low memory of the host, blocking", "background tuning",
	"background tuning for large objects", "background step", "induced, aggressive",
}

func (r CollectionReason) String() string { return word(collectionReasons[:], uint32(r), "reason") }

// CollectionType is how a garbage collection works.
type CollectionType uint32

// The types.
const (
	BlockingCollection   CollectionType = 0
	BackgroundCollection CollectionType = 1 // the program runs meanwhile, except for short stops
	ForegroundCollection CollectionType = 2 // blocking, while a background one is under way
)

var collectionTypes = [...]string{"blocking", "background", "foreground"}

func (t CollectionType) String() string { return word(collectionTypes[:], uint32(t), "type") }

// SuspendReason is why the runtime stops its threads (threadsuspend.h).
type SuspendReason uint32

// The reasons related to garbage collections.
const (
	SuspendForGC     SuspendReason = 1
	SuspendForGCPrep SuspendReason = 6 // a background collection's short stops
)

var suspendReasons = [...]string{
	"other", "garbage collection", "unloading", "recompilation", "shutdown", "debugger",
	"background garbage collection", "debugger", "profiler",
}

func (r SuspendReason) String() string { return word(suspendReasons[:], uint32(r), "reason") }

func word(words []string, i uint32, kind string) string {
	if int(i) < len(words) {
		return words[i]
	}
	return fmt.Sprintf("%s %d", kind, i)
}

// HasStack reports whether the runtime walked the thread's stack.
func (n *Notification) HasStack() bool { return len(n.record.Frames) > 0 }

// DoStackSnapshot is the synchronous form of clrsnap.Process.DoStackSnapshot: it calls callback for
// the frames that the CLR's own DoStackSnapshot found on the thread inside the notification. Call it
// any number of times. There is no seed, and no suspension. COR_PRF_SNAPSHOT_REGISTER_CONTEXT needs
// Options.RegisterContext.
//
// The result is nil (S_OK), or a *clrsnap.Error:
//
//   - E_INVALIDARG: unknown flags, a nil callback, an unrequested context.
//   - CORPROF_E_STACKSNAPSHOT_ABORTED: the callback returned an error, or the
//     stack has more frames than Options.MaxFrames.
//   - E_FAIL: there is no managed frame, or the event has no stack.
//   - CORPROF_E_STACKSNAPSHOT_UNSAFE: the CLR could not walk at this moment, for example
//     because the runtime was still starting.
func (n *Notification) DoStackSnapshot(
	callback clrsnap.StackSnapshotCallback, infoFlags clrsnap.SnapshotInfo, clientData any,
) error {
	failed := func(hr clrsnap.HRESULT, text string, cause error) error {
		return &clrsnap.Error{HRESULT: hr, Thread: n.Thread, Text: text, Err: cause}
	}
	if err := n.checkArguments(callback, infoFlags); err != nil {
		return err
	}
	for i := range n.record.Frames {
		if err := n.call(&n.record.Frames[i], callback, infoFlags, clientData); err != nil {
			return failed(clrsnap.CORPROF_E_STACKSNAPSHOT_ABORTED, "the callback stopped the walk", err)
		}
	}
	switch hr := clrsnap.HRESULT(n.record.Result); {
	case n.record.Truncated:
		return failed(clrsnap.CORPROF_E_STACKSNAPSHOT_ABORTED,
			"the stack has more frames than Options.MaxFrames: those near the base are missing", nil)
	case !n.Event.hasStack():
		return failed(clrsnap.E_FAIL, fmt.Sprintf("%v comes without a stack", n.Event), nil)
	case hr != clrsnap.S_OK:
		return failed(hr, "the CLR did not walk the stack", nil)
	}
	return nil
}

func (n *Notification) checkArguments(callback clrsnap.StackSnapshotCallback, flags clrsnap.SnapshotInfo) error {
	bad := func(format string, args ...any) error {
		return &clrsnap.Error{HRESULT: clrsnap.E_INVALIDARG, Thread: n.Thread, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case callback == nil:
		return bad("the callback is nil")
	case flags&^clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT != 0:
		return bad("infoFlags %#x are not for a 64-bit target", uint32(flags))
	case flags != 0 && !n.record.Registers && n.HasStack():
		return bad("register contexts were not asked for: set Options.RegisterContext")
	}
	return nil
}

func (e Event) hasStack() bool {
	switch e {
	case ObjectAllocated, ExceptionThrown, ExceptionRethrown, LockContended, ThreadStarting,
		GarbageCollectionTriggered, ThreadWaited:
		return true
	}
	return false
}

func (n *Notification) call(f *agent.Frame, callback clrsnap.StackSnapshotCallback,
	flags clrsnap.SnapshotInfo, clientData any) error {
	out := bridge.Frame{Method: arch.Addr(f.Function), IP: arch.Addr(f.IP)}
	if f.Function != 0 {
		// If the code has been unloaded, out.Code stays nil, and the FrameInfo has less to say.
		if code, ok, err := n.p.Walker.Managed(out.IP); err == nil && ok && code.MethodDesc == out.Method {
			out.Code = &code
		}
	}
	if flags&clrsnap.COR_PRF_SNAPSHOT_REGISTER_CONTEXT != 0 {
		out.Context = registers(n.p, f)
	}
	return root.Call(n.p, callback, &out, clientData)
}

// registers makes a context from the registers in the agent's copy.
func registers(p *session.Process, f *agent.Frame) *arch.Context {
	c := &arch.Context{Machine: p.Arch.Machine, IP: arch.Addr(f.ContextIP)}
	for r, v := range map[uint8]uint64{3: f.RBX, 4: f.SP, 5: f.RBP, 12: f.R12, 13: f.R13, 14: f.R14, 15: f.R15} {
		c.Set(r, v)
	}
	return c
}
