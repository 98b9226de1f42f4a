package waits

import (
	"testing"

	"clrsnap/snapshot"
)

// managed makes frames of methods, leaf first, with native code below them.
func managed(frames ...[2]string) []snapshot.Frame {
	out := []snapshot.Frame{{Kind: snapshot.Native, Module: "libc.so.6", SP: 0x1000}}
	for i, f := range frames {
		kind := snapshot.Managed
		if f[0] == "" {
			kind = snapshot.Native
		}
		out = append(out, snapshot.Frame{Kind: kind, Module: f[0], Method: f[1], SP: 0x1100 + 0x100*uint64(i)})
	}
	return out
}

func TestClassify(t *testing.T) {
	const own = "Shop"
	wait := [2]string{coreLib, "System.Threading.Monitor.Wait"}
	slim := [2]string{coreLib, "System.Threading.SemaphoreSlim.WaitUntilCountOrTimeout"}
	event := [2]string{coreLib, "System.Threading.ManualResetEventSlim.Wait"}
	work := [2]string{own, "Shop.Orders.Work"}
	for _, tt := range []struct {
		name   string
		frames []snapshot.Frame
		kind   snapshot.WaitKind
		outer  int
	}{
		{"Monitor.Wait", managed(wait, work), snapshot.MonitorWait, 1},
		{"a semaphore is made of a monitor", managed(wait, slim, work), snapshot.SemaphoreWait, 2},
		{"a collection is made of a semaphore", managed(wait, slim,
			[2]string{concurrent, "System.Collections.Concurrent.BlockingCollection`1.TryTakeWithNoTimeValidation"},
			[2]string{concurrent,
				"System.Collections.Concurrent.BlockingCollection`1+<GetConsumingEnumerable>d__68.MoveNext"},
			work), snapshot.CollectionTake, 4},
		{"a task", managed(wait, event, [2]string{coreLib, "System.Threading.Tasks.Task.SpinThenBlockingWait"},
			[2]string{coreLib, "System.Threading.Tasks.Task.InternalWaitCore"},
			[2]string{coreLib, "System.Runtime.CompilerServices.TaskAwaiter.HandleNonSuccessAndDebuggerNotification"},
			work),
			snapshot.TaskWait, 5},
		{"the pool that runs the task waits for none", managed(wait, event,
			[2]string{coreLib, "System.Threading.Tasks.Task.ExecuteWithThreadLocal"}), snapshot.EventWait, 2},
		{"a stub between", managed([2]string{coreLib, "IL_STUB_PInvoke"},
			[2]string{coreLib, "System.Threading.WaitHandle.WaitOneNoCheck"}, work), snapshot.HandleOne, 2},
		{"spins before it waits", managed([2]string{coreLib, "System.Threading.Thread.Sleep"},
			[2]string{coreLib, "System.Threading.SpinWait.SpinOnceCore"}, event, work), snapshot.EventWait, 3},
		{"a socket that does not block", managed(wait, event,
			[2]string{sockets, "System.Net.Sockets.SocketAsyncContext.PerformSyncOperation"},
			[2]string{sockets, "System.Net.Sockets.Socket.Receive"}, work), snapshot.WaitIO, 4},
		{"spins", managed([2]string{coreLib, "System.Threading.Thread.Sleep"},
			[2]string{coreLib, "System.Threading.SpinWait.SpinOnceCore"}, work), snapshot.ThreadSleep, 1},
		{"a lock", managed([2]string{coreLib, "System.Threading.WaitHandle.WaitOneNoCheck"},
			[2]string{coreLib, "System.Threading.Lock.TryEnterSlow"}, work), snapshot.LockEnter, 2},
		{"a method of that name of somebody else's", managed([2]string{own, "System.Threading.Monitor.Wait"}), "", 0},
		{"called by native code that waits", managed(wait, [2]string{"", "callback"}, event), snapshot.MonitorWait, 1},
		{"waits in what a wait has called", managed(work, wait), "", 0},
		{"nothing managed", managed(), "", 0},
	} {
		p := classify(tt.frames)
		if p.kind != tt.kind || tt.kind != "" && p.outer != tt.outer {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
}
