package snapshot

import "time"

// WaitKind is what a thread waits for: the outermost primitive that the program called. A SemaphoreSlim contains a
// monitor; a caller of SemaphoreSlim.Wait waits for a SemaphoreSlim.
type WaitKind string

// The kinds of wait.
const (
	MonitorEnter WaitKind = "Monitor.Enter"
	MonitorWait  WaitKind = "Monitor.Wait"
	LockEnter    WaitKind = "Lock.Enter" // System.Threading.Lock
	// SpinLock.Enter: the thread spins, yields and sleeps for moments
	SpinLockEnter   WaitKind = "SpinLock.Enter"
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
	WaitIdle        WaitKind = "idle"    // a thread of the runtime or the pool waits for work: see Thread.Idle
	WaitRuntime     WaitKind = "runtime" // in native code of the runtime, for something unknown
)

// WaitKinds are all kinds of wait.
var WaitKinds = [...]WaitKind{
	MonitorEnter, MonitorWait, LockEnter, SpinLockEnter,
	ReadLock, UpgradeableLock, WriteLock, SemaphoreWait, EventWait, CountdownWait,
	BarrierWait, CollectionTake, CollectionAdd, TaskWait, TaskWaitAll, TaskWaitAny, ThreadJoin, ThreadSleep, HandleOne,
	HandleAny, HandleAll, WaitIO, WaitIdle, WaitRuntime,
}

// OfTasks reports whether a wait is for one task, or for several.
func (k WaitKind) OfTasks() bool { return k == TaskWait || k == TaskWaitAll || k == TaskWaitAny }

// MaxTasks bounds Wait.Tasks.
const MaxTasks = 256

// Forever is the Timeout of a wait without one.
const Forever time.Duration = -1

// Wait is what a thread waits for, or what a thread holds.
type Wait struct {
	Kind WaitKind
	// Object is the address of the object that the thread waits for, and Type the object's class; 0 and "": not
	// known, or none. The garbage collector moves objects: the address is valid at the moment of the capture.
	Object uint64
	Type   string
	// Of says what the object stands for, if the object is a type, a method, an assembly, a delegate or a string:
	// "typeof(Shop.Order)", "Shop.Order.Save(int)". "": the object stands for itself, or Of is not known.
	Of string
	// Lock identifies the object among all objects of its kind, also after the collector has moved the object: Lock
	// is the place where the runtime keeps the lock's state, or a number of the lock. 0: not known.
	Lock uint64
	// Field is the field that holds the object: "Shop.Ledger._gate", an instance field or a static field. For a
	// variable captured by a lambda or an async method, Field is "variable gate of Shop.Ledger". "": not known. Other
	// fields may hold the same object.
	Field string
	// Owner is the holder of the lock. For a Thread.Join, Owner is the joined thread; for a Task.Wait, the thread
	// that runs the task, or that the task waits for. nil: nobody, not known, or locks of this kind have no owner.
	Owner *ThreadRef
	// Readers are threads that hold the lock to read, and have to leave the lock first. If a reader has ended without
	// leaving the lock, the last of Readers has no OSThreadID.
	Readers []ThreadRef
	// Behind are threads that wait to write under a ReaderWriterLockSlim: the lock admits no reader before these
	// threads.
	Behind []ThreadRef
	// Tasks are the tasks that a Task.WaitAll still waits for, at most MaxTasks, or all tasks of a Task.WaitAny. Each
	// task is as in a Task.Wait. nil: not known, or a Task.WaitAny has more.
	Tasks []Wait
	// Recursion is how often the owner holds the lock; 0: nobody holds the lock, or the number is not known.
	Recursion int
	// Waiters is how many threads wait for the same object, this thread included.
	Waiters int
	// Timeout is how long the wait may last: Forever; 0: not known. A SemaphoreSlim, for example, waits in several
	// steps: there Timeout is the time that was left at the beginning of the last step.
	Timeout time.Duration
	// Rest is how much of Timeout is left; for a thread that sleeps, how long the sleep still lasts; 0: not known.
	Rest time.Duration
	// Certain: two readings gave the same wait. Otherwise the wait changed meanwhile, and may never have been true at
	// one moment; Owner, Recursion and Waiters are left out then.
	Certain bool
	// Method is the async method of the task that the thread waits for.
	Method string
	// Target is the file or socket of an io: "/var/log/orders.log", "recv tcp 10.1.2.3:41234 → 10.1.2.9:5432
	// established".
	Target string
	// Detail has particulars of the kind, for people: "count 0", "3 readers", "WaitingForActivation", "2 of 5 tasks
	// not complete".
	Detail string
}

// ThreadRef names a thread.
type ThreadRef struct {
	OSThreadID      int // in the PID namespace of clrsnap; 0: the thread has ended
	ManagedThreadID int
	Name            string
}
