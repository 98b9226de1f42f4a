package profile

import "time"

// Tasks is what the async methods of a process wait for, and what its thread pool has to do.
type Tasks struct {
	Process    Process
	CapturedAt time.Time     // when the heap was begun to be read
	Duration   time.Duration // of all

	// Chains are first those with a method of the program's own, then those with one of a package, then those of .NET
	// alone; of each those with the highest count first.
	Chains []TaskChain
	Pool   *Pool   // nil: not known
	Timers []Timer // those that are due first

	Methods         int     // async methods that have been suspended and have not ended
	Unproven        int     // of these, those whose chain changed all the time while it was read: they are left out
	Unread          int     // objects of methods that could not be read, as after a collection: some may not have ended
	ConsistentShare float64 // as in Heap: methods in the rest may be missing
	Partial         bool    // the walk was ended early
}

// TaskChain is async methods that await each other, or several such chains that are equal.
type TaskChain struct {
	Count    int
	Frames   []Frame // of kind Async, the innermost first, each with the line of its await
	WaitsFor *Awaited
	State    TaskState
	// Threads run the innermost methods, as far as that is known. Of methods with a state machine it is known if they
	// block their threads.
	Threads []ThreadRef
}

// TaskState is what a chain of async methods does.
type TaskState string

// The states. In the last three the innermost method goes on as soon as a thread of the pool has time.
const (
	TaskRunning  TaskState = "running"  // a thread runs the innermost method, or is about to
	TaskWaiting  TaskState = "waiting"  // for what is in WaitsFor
	TaskReady    TaskState = "ready"    // what it has waited for is complete; of "yield": it is in the pool's queue
	TaskFaulted  TaskState = "faulted"  // likewise, with an exception
	TaskCanceled TaskState = "canceled" // likewise, because it was cancelled
)

// Awaited is what the innermost method of a chain waits for.
type Awaited struct {
	Kind   AwaitedKind
	Object uint64 // address of the object that is awaited, at that moment; 0: not known, or several chains have others
	Type   string // its class
	Target string // of a socket: "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established"
	// Due is when a timer ends the wait, from CapturedAt on; of several chains the first one. Negative: it should
	// have by then.
	Due    time.Duration
	HasDue bool
}

// AwaitedKind is what is waited for.
type AwaitedKind string

// The kinds.
const (
	AwaitsTimer      AwaitedKind = "timer"     // Task.Delay, PeriodicTimer
	AwaitsEndless    AwaitedKind = "endless"   // Task.Delay(-1): nothing, unless a token can cancel the delay
	AwaitsSemaphore  AwaitedKind = "semaphore" // SemaphoreSlim.WaitAsync
	AwaitsSocket     AwaitedKind = "socket"
	AwaitsFile       AwaitedKind = "file"    // RandomAccess, FileStream: a thread of the pool does it
	AwaitsChannel    AwaitedKind = "channel" // System.Threading.Channels
	AwaitsPipe       AwaitedKind = "pipe"    // System.IO.Pipelines
	AwaitsCompletion AwaitedKind = "TaskCompletionSource"
	AwaitsMethod     AwaitedKind = "method" // another async method, whose chain does not lead here, or not any more
	AwaitsTask       AwaitedKind = "task"   // a task that runs code, such as that of Task.Run
	// Task.WhenAll: those of its tasks that are async methods have chains of their own
	AwaitsSeveral AwaitedKind = "WhenAll"
	AwaitsOne     AwaitedKind = "WhenAny" // Task.WhenAny
	AwaitsTimeout AwaitedKind = "WaitAsync"
	AwaitsSource  AwaitedKind = "source" // another IValueTaskSource, or object
	AwaitsYield   AwaitedKind = "yield"  // nothing that is known: Task.Yield, or an awaitable of the program's
)

// Pool is the state of the thread pool.
type Pool struct {
	Workers int // threads
	Idle    int // of these, those that wait for work
	Minimum int // how many are started without delay
	Target  int // how many should run, in the pool's opinion
	Maximum int
	Queued  int // work items that no thread has begun
	Work    []QueuedWork
	HasWork bool // Queued is known
}

// QueuedWork is work items of one kind that no thread has begun.
type QueuedWork struct {
	Count int
	What  string // the async method, or the class of the item
}

// Timer is a timer that is armed, or several with the same callback and period.
type Timer struct {
	Count    int
	Callback string        // the class of the object that is called, or what waits: "Task.Delay"
	Due      time.Duration // when the first of them is due, from CapturedAt on
	HasDue   bool
	Period   time.Duration // 0: once
}
