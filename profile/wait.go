package profile

import "time"

// WaitKind is what a thread waits for: the outermost primitive that the program called. A SemaphoreSlim is made
// of a monitor; who calls its Wait waits for a SemaphoreSlim.
type WaitKind string

// The kinds of wait.
const (
	MonitorEnter    WaitKind = "Monitor.Enter"
	MonitorWait     WaitKind = "Monitor.Wait"
	LockEnter       WaitKind = "Lock.Enter" // System.Threading.Lock
	ReadLock        WaitKind = "ReaderWriterLockSlim.Read"
	UpgradeableLock WaitKind = "ReaderWriterLockSlim.UpgradeableRead"
	WriteLock       WaitKind = "ReaderWriterLockSlim.Write"
	SemaphoreWait   WaitKind = "SemaphoreSlim.Wait"
	EventWait       WaitKind = "ManualResetEventSlim.Wait"
	CountdownWait   WaitKind = "CountdownEvent.Wait"
	BarrierWait     WaitKind = "Barrier.SignalAndWait"
	CollectionTake  WaitKind = "BlockingCollection.Take"
	CollectionAdd   WaitKind = "BlockingCollection.Add"
	TaskWait        WaitKind = "Task.Wait" // also Task.Result and GetAwaiter().GetResult()
	TaskWaitAll     WaitKind = "Task.WaitAll"
	TaskWaitAny     WaitKind = "Task.WaitAny"
	ThreadJoin      WaitKind = "Thread.Join"
	ThreadSleep     WaitKind = "Thread.Sleep"
	HandleOne       WaitKind = "WaitHandle.WaitOne"
	HandleAny       WaitKind = "WaitHandle.WaitAny"
	HandleAll       WaitKind = "WaitHandle.WaitAll"
	WaitIO          WaitKind = "io"
	WaitIdle        WaitKind = "idle"    // a thread of the runtime's or the pool's that waits for work: see Thread.Idle
	WaitRuntime     WaitKind = "runtime" // in native code of the runtime, for what is not known
)

// WaitKinds are all kinds of wait.
var WaitKinds = [...]WaitKind{
	MonitorEnter, MonitorWait, LockEnter, ReadLock, UpgradeableLock, WriteLock, SemaphoreWait, EventWait, CountdownWait,
	BarrierWait, CollectionTake, CollectionAdd, TaskWait, TaskWaitAll, TaskWaitAny, ThreadJoin, ThreadSleep, HandleOne,
	HandleAny, HandleAll, WaitIO, WaitIdle, WaitRuntime,
}

// OfTasks reports whether a wait is for one task, or for several.
func (k WaitKind) OfTasks() bool { return k == TaskWait || k == TaskWaitAll || k == TaskWaitAny }

// MaxTasks bounds Wait.Tasks.
const MaxTasks = 256

// Forever is the Timeout of a wait without one.
const Forever time.Duration = -1

// Wait is what a thread waits for, or what it holds.
type Wait struct {
	Kind WaitKind
	// Object is the address of the object that is waited for, and Type its class; 0 and "": not known, or none.
	// The garbage collector moves objects: the address is that of the moment.
	Object uint64
	Type   string
	// Of says what the object stands for, if it is a type, a method, an assembly, a delegate or a string:
	// "typeof(Shop.Order)", "Shop.Order.Save(int)". "": it stands for itself, or that is not known.
	Of string
	// Lock tells what is waited for apart from all else of its kind, also once the collector has moved the object:
	// where the runtime keeps the lock's state, or a number that the lock has. 0: none is known.
	Lock uint64
	// Field is the field that holds the object: "Shop.Ledger._gate", of an object or static. Of a variable that a
	// lambda or an async method has captured it is "variable gate of Shop.Ledger". "": none is known. Other fields may
	// hold the same object.
	Field string
	// Owner is who holds the lock; of a Thread.Join the thread that is joined; of a Task.Wait the one that runs the
	// task, or what the task waits for. nil: nobody does, that is not known, or locks of this kind have no owner.
	Owner *ThreadRef
	// Readers are threads that hold the lock to read, and have to leave it first. One without OSThreadID is last if
	// some have ended without leaving it.
	Readers []ThreadRef
	// Behind are threads that wait to write under a ReaderWriterLockSlim: it lets nobody in to read before them.
	Behind []ThreadRef
	// Tasks are those that a Task.WaitAll still waits for, at most MaxTasks, or all those of which a Task.WaitAny waits
	// for one. Each is as in a Task.Wait. nil: that is not known, or a Task.WaitAny has more.
	Tasks []Wait
	// Recursion is how often the owner holds the lock; 0: it is not held, or that is not known.
	Recursion int
	// Waiters is how many threads wait for the same, this one included.
	Waiters int
	// Timeout is how long the wait may last: Forever; 0: not known. A SemaphoreSlim and the like wait again and again:
	// of them it is what was left when they did last.
	Timeout time.Duration
	// Rest is how much of Timeout is left, of a thread that sleeps how long it still sleeps; 0: that is not known.
	Rest time.Duration
	// Certain: all of this was the same when it was read twice. Otherwise it has changed meanwhile, and may
	// never have been true at one moment; Owner, Recursion and Waiters are left out then.
	Certain bool
	// Method is the async method whose task is waited for.
	Method string
	// Target is what an io is for: "/var/log/orders.log", "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432 established".
	Target string
	// Detail has what is particular to the kind, for people: "count 0", "3 readers", "WaitingForActivation", "2 of 5
	// tasks not complete".
	Detail string
}

// ThreadRef names a thread.
type ThreadRef struct {
	OSThreadID      int // in the PID namespace of clrsnap; 0: the thread has ended
	ManagedThreadID int
	Name            string
}
