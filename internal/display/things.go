package display

import "clrsnap/snapshot"

// Things name the awaited object of a wait if nothing else is known of the object.
var Things = map[snapshot.WaitKind]string{
	snapshot.MonitorEnter: "an object", snapshot.MonitorWait: "an object", snapshot.LockEnter: "a Lock",
	snapshot.SpinLockEnter: "a SpinLock",
	snapshot.ReadLock:      "a ReaderWriterLockSlim", snapshot.UpgradeableLock: "a ReaderWriterLockSlim",
	snapshot.WriteLock: "a ReaderWriterLockSlim", snapshot.SemaphoreWait: "a SemaphoreSlim",
	snapshot.EventWait: "a ManualResetEventSlim", snapshot.CountdownWait: "a CountdownEvent",
	snapshot.BarrierWait: "a Barrier", snapshot.CollectionTake: "a BlockingCollection",
	snapshot.CollectionAdd: "a BlockingCollection", snapshot.TaskWait: "a task", snapshot.ThreadJoin: "a thread",
	snapshot.TaskWaitAll: "all of several tasks", snapshot.TaskWaitAny: "any of several tasks",
	snapshot.HandleOne: "a handle", snapshot.HandleAny: "several handles", snapshot.HandleAll: "several handles",
}
