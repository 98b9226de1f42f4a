package display

import "clrsnap/profile"

// Things name the awaited object of a wait if nothing else is known of the object.
var Things = map[profile.WaitKind]string{
	profile.MonitorEnter: "an object", profile.MonitorWait: "an object", profile.LockEnter: "a Lock",
	profile.SpinLockEnter: "a SpinLock",
	profile.ReadLock:      "a ReaderWriterLockSlim", profile.UpgradeableLock: "a ReaderWriterLockSlim",
	profile.WriteLock: "a ReaderWriterLockSlim", profile.SemaphoreWait: "a SemaphoreSlim",
	profile.EventWait: "a ManualResetEventSlim", profile.CountdownWait: "a CountdownEvent",
	profile.BarrierWait: "a Barrier", profile.CollectionTake: "a BlockingCollection",
	profile.CollectionAdd: "a BlockingCollection", profile.TaskWait: "a task", profile.ThreadJoin: "a thread",
	profile.TaskWaitAll: "all of several tasks", profile.TaskWaitAny: "any of several tasks",
	profile.HandleOne: "a handle", profile.HandleAny: "several handles", profile.HandleAll: "several handles",
}
