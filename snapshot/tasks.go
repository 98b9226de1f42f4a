package snapshot

import "time"

// Tasks is what the async methods of a process wait for, and the work of its thread pool.
type Tasks struct {
	Process    Process
	CapturedAt time.Time     // when the reading of the heap began
	Duration   time.Duration // of all

	// Chains are first the chains with a method of the program, then the chains with a method of a package, then the
	// chains of .NET alone; within each, the chains with the highest count come first.
	Chains []TaskChain
	Pool   *Pool   // nil: not known
	Timers []Timer // the earliest due first

	// Faults are tasks on the heap that have ended with an exception: of a host's services first, then those that
	// nobody has observed, then the others. Some may be garbage that the collector has not met yet. At most some
	// dozens of kinds.
	Faults []TaskFault

	// Ended are the classes of the host's background services whose ExecuteAsync has ended, and without an exception.
	Ended []string

	Methods         int     // async methods that have been suspended and have not ended
	Unproven        int     // of Methods: chains that changed at every reading; left out
	Unread          int     // unreadable objects of methods, as after a collection: some methods may not have ended
	ConsistentShare float64 // as in Heap: methods in the rest may be missing
	Partial         bool    // the walk ended early
	// Stop says how long all threads stood still, and whether everything is of one moment; nil: no stop was asked for.
	Stop *HeapStop
}

// TaskChain is async methods that await each other, or several equal chains.
type TaskChain struct {
	Count    int
	Frames   []Frame // of kind Async, the innermost first, each with the line of its await
	WaitsFor *Awaited
	State    TaskState
	// Threads run the innermost methods, as far as known. For methods with a state machine, the threads are known if
	// the methods block their threads.
	Threads []ThreadRef
	// ReadsChannel: one of the program's methods takes items from a channel, by its code. The code does not tell from
	// which. Reader is the index of the innermost such method's frame.
	ReadsChannel bool
	Reader       int
	// Completes: one of the program's methods completes a TaskCompletionSource, by its code or by the code of the
	// methods that it calls. The code does not tell which. Completer is the index of the innermost such method's frame.
	Completes bool
	Completer int
	// Circular: the innermost method waits for one of the chain's other methods, which awaits the innermost method.
	// None of the circle goes on.
	Circular bool
}

// TaskState is the state of a chain of async methods.
type TaskState string

// The states. In the last three states the innermost method goes on as soon as a thread of the pool has time.
const (
	TaskRunning  TaskState = "running"  // a thread runs the innermost method, or is about to
	TaskWaiting  TaskState = "waiting"  // for WaitsFor
	TaskReady    TaskState = "ready"    // the awaited object is complete; for "yield": the pool's queue has the method
	TaskFaulted  TaskState = "faulted"  // as TaskReady, with an exception
	TaskCanceled TaskState = "canceled" // as TaskReady, after a cancellation
)

// Awaited is what the innermost method of a chain waits for.
type Awaited struct {
	Kind   AwaitedKind
	Object uint64 // address of the awaited object, at that moment; 0: not known, or the chains await different objects
	Type   string // its class
	Target string // of a socket: "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established"
	// Due is when a timer ends the wait, counted from CapturedAt; for several chains, the first timer. Negative: the
	// timer should have ended the wait by then.
	Due    time.Duration
	HasDue bool
}

// AwaitedKind is the kind of the awaited object.
type AwaitedKind string

// The kinds.
const (
	AwaitsTimer      AwaitedKind = "timer"     // Task.Delay, PeriodicTimer
	AwaitsEndless    AwaitedKind = "endless"   // Task.Delay(-1): nothing, unless a token can cancel the delay
	AwaitsSemaphore  AwaitedKind = "semaphore" // SemaphoreSlim.WaitAsync
	AwaitsSocket     AwaitedKind = "socket"
	AwaitsFile       AwaitedKind = "file"    // RandomAccess, FileStream: a thread of the pool does the work
	AwaitsChannel    AwaitedKind = "channel" // System.Threading.Channels
	AwaitsPipe       AwaitedKind = "pipe"    // System.IO.Pipelines
	AwaitsCompletion AwaitedKind = "TaskCompletionSource"
	AwaitsMethod     AwaitedKind = "method" // another async method, whose chain does not lead here, or no longer does
	AwaitsTask       AwaitedKind = "task"   // a task that runs code, for example of Task.Run
	// Task.WhenAll: its async methods have chains of their own
	AwaitsSeveral AwaitedKind = "WhenAll"
	AwaitsOne     AwaitedKind = "WhenAny" // Task.WhenAny
	AwaitsTimeout AwaitedKind = "WaitAsync"
	AwaitsSource  AwaitedKind = "source" // another IValueTaskSource, or object
	AwaitsYield   AwaitedKind = "yield"  // nothing known: Task.Yield, or an awaitable of the program
)

// Pool is the state of the thread pool.
type Pool struct {
	Workers int // threads
	Idle    int // of Workers, the threads that wait for work
	Minimum int // number of threads that start without delay
	Target  int // the number of running threads that the pool aims for
	Maximum int
	Queued  int // work items not yet begun
	Work    []QueuedWork
	HasWork bool // Queued is known
}

// QueuedWork is work items of one kind, not yet begun.
type QueuedWork struct {
	Count int
	What  string // the async method, or the class of the item
}

// Timer is an armed timer, or several with one callback and period.
type Timer struct {
	Count    int
	Callback string        // the class of the called object, or the waiter: "Task.Delay"
	Due      time.Duration // when the first timer is due, counted from CapturedAt
	HasDue   bool
	Period   time.Duration // 0: once
}

// TaskFault is a task that has ended with an exception, or several equal ones.
type TaskFault struct {
	Count  int
	Method string // the async method, or the method that the task ran; "": not known
	// Service is the class of the BackgroundService whose ExecuteAsync has failed; "": none.
	Service string
	// Observed: somebody has asked for the exception, by an await for example.
	Observed     bool
	Object       uint64         // one of the tasks, at that moment
	ReadsChannel bool           // as in TaskChain
	Completes    bool           // as in TaskChain
	Exception    *ExceptionInfo // of one of the tasks, the first if there are several
}
