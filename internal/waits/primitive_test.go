package waits

import (
	"testing"

	"clrsnap/profile"
)

// managed makes frames of methods, leaf first, with native code below them.
func managed(frames ...[2]string) []profile.Frame {
	out := []profile.Frame{{Kind: profile.Native, Module: "libc.so.6", SP: 0x1000}}
	for i, f := range frames {
		kind := profile.Managed
		if f[0] == "" {
			kind = profile.Native
		}
		out = append(out, profile.Frame{Kind: kind, Module: f[0], Method: f[1], SP: 0x1100 + 0x100*uint64(i)})
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
		frames []profile.Frame
		kind   profile.WaitKind
		outer  int
	}{
		{"Monitor.Wait", managed(wait, work), profile.MonitorWait, 1},
		{"a semaphore is made of a monitor", managed(wait, slim, work), profile.SemaphoreWait, 2},
		{"a collection is made of a semaphore", managed(wait, slim,
			[2]string{concurrent, "System.Collections.Concurrent.BlockingCollection`1.TryTakeWithNoTimeValidation"},
			[2]string{concurrent,
				"System.Collections.Concurrent.BlockingCollection`1+<GetConsumingEnumerable>d__68.MoveNext"},
			work), profile.CollectionTake, 4},
		{"a task", managed(wait, event, [2]string{coreLib, "System.Threading.Tasks.Task.SpinThenBlockingWait"},
			[2]string{coreLib, "System.Threading.Tasks.Task.InternalWaitCore"},
			[2]string{coreLib, "System.Runtime.CompilerServices.TaskAwaiter.HandleNonSuccessAndDebuggerNotification"},
			work),
			profile.TaskWait, 5},
		{"the pool that runs the task waits for none", managed(wait, event,
			[2]string{coreLib, "System.Threading.Tasks.Task.ExecuteWithThreadLocal"}), profile.EventWait, 2},
		{"a stub between", managed([2]string{coreLib, "IL_STUB_PInvoke"},
			[2]string{coreLib, "System.Threading.WaitHandle.WaitOneNoCheck"}, work), profile.HandleOne, 2},
		{"spins before it waits", managed([2]string{coreLib, "System.Threading.Thread.Sleep"},
			[2]string{coreLib, "System.Threading.SpinWait.SpinOnceCore"}, event, work), profile.EventWait, 3},
		{"a socket that does not block", managed(wait, event,
			[2]string{sockets, "System.Net.Sockets.SocketAsyncContext.PerformSyncOperation"},
			[2]string{sockets, "System.Net.Sockets.Socket.Receive"}, work), profile.WaitIO, 4},
		{"spins", managed([2]string{coreLib, "System.Threading.Thread.Sleep"},
			[2]string{coreLib, "System.Threading.SpinWait.SpinOnceCore"}, work), profile.ThreadSleep, 1},
		{"a lock", managed([2]string{coreLib, "System.Threading.WaitHandle.WaitOneNoCheck"},
			[2]string{coreLib, "System.Threading.Lock.TryEnterSlow"}, work), profile.LockEnter, 2},
		{"a method of that name of somebody else's", managed([2]string{own, "System.Threading.Monitor.Wait"}), "", 0},
		{"called by native code that waits", managed(wait, [2]string{"", "callback"}, event), profile.MonitorWait, 1},
		{"waits in what a wait has called", managed(work, wait), "", 0},
		{"nothing managed", managed(), "", 0},
	} {
		p := classify(tt.frames)
		if p.kind != tt.kind || tt.kind != "" && p.outer != tt.outer {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
}
