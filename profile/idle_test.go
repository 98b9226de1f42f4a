package profile

import (
	"testing"

	"clrsnap/snapshot"
)

// Methods of the runtime's own threads.
const (
	workerStart = "System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart"
	lifoWait    = "System.Threading.LowLevelLifoSemaphore.Wait"
	waitOne     = "System.Threading.WaitHandle.WaitOneNoCheck"
	timerThread = "System.Threading.TimerQueue.TimerThread"
	callback    = "System.Threading.Thread.StartCallback"
)

// seen is a thread with a native frame at the leaf and managed frames of one module.
func seen(module, role, state string, methods ...string) *snapshot.Thread {
	t := &snapshot.Thread{Role: role, State: state, Complete: true, Frames: []snapshot.Frame{{Kind: snapshot.Native,
		Module: "libc.so.6"}}}
	for _, m := range methods {
		t.Frames = append(t.Frames, snapshot.Frame{Kind: snapshot.Managed, Module: module, Method: m})
	}
	return t
}

func TestIdle(t *testing.T) {
	const futex = "waiting (futex)"
	of := func(state string, methods ...string) *snapshot.Thread { return seen(coreLib, "", state, methods...) }
	incomplete := of(futex, lifoWait, workerStart)
	incomplete.Complete = false
	sockets := seen("System.Net.Sockets", "", "waiting for I/O (epoll_wait)",
		"Interop+Sys.WaitForSocketEvents", "System.Net.Sockets.SocketAsyncEngine.EventLoop")
	busySockets := *sockets
	busySockets.State = "running"
	called := of(futex, waitOne, "Shop.Wait", timerThread)
	called.Frames[2].Module = "Shop"
	kestrel := of(futex, "System.Threading.Monitor.Wait", "System.Threading.ManualResetEventSlim.Wait",
		"Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Infrastructure.Heartbeat.TimerLoop")
	kestrel.Frames[3].Module = "Microsoft.AspNetCore.Server.Kestrel.Core"
	kestrel11 := of(futex, "Interop+Sys.LowLevelMonitor_TimedWait",
		"System.Threading.WaitSubsystem+ThreadWaitInfo.Wait",
		waitOne, "System.Threading.Condition.Wait", "System.Threading.ManualResetEventSlim.Wait",
		"Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Infrastructure.Heartbeat.TimerLoop")
	kestrel11.Frames[6].Module = "Microsoft.AspNetCore.Server.Kestrel.Core"
	const (
		taskWait = "System.Threading.Tasks.Task.SpinThenBlockingWait"
		getTask  = "System.Runtime.CompilerServices.TaskAwaiter.GetResult"
		hostRun  = "Microsoft.Extensions.Hosting.HostingAbstractionsHostExtensions.Run"
	)
	host := of(futex, "System.Threading.Monitor.Wait", "System.Threading.ManualResetEventSlim.Wait", taskWait,
		"System.Threading.Tasks.Task.InternalWaitCore", "System.Threading.Tasks.Task.InternalWait", getTask, hostRun,
		"Shop.Program.Main")
	host.Frames[7].Module = "Microsoft.Extensions.Hosting.Abstractions"
	asyncly := of(futex, "System.Threading.ManualResetEventSlim.Wait", taskWait, getTask, "Shop.Program.<Main>")
	asyncly.Frames[4].Module = "Shop"
	withResult := of(futex, "System.Threading.ManualResetEventSlim.Wait", taskWait,
		"System.Runtime.CompilerServices.TaskAwaiter`1.GetResult", "Shop.Program.<Main>")
	withResult.Frames[4].Module = "Shop"
	inlined := of(futex, waitOne, "Shop.Program+<Main>d__0.MoveNext", "System.Threading.Tasks.Task.InternalWait",
		getTask, "Shop.Program.<Main>")
	inlined.Frames[2].Module, inlined.Frames[5].Module = "Shop", "Shop"
	compiling := of("running", workerStart)
	compiling.Frames[0].Module = "libclrjit.so"
	for name, c := range map[string]struct {
		t    *snapshot.Thread
		want snapshot.Idle
	}{
		"worker": {of(futex, "System.Threading.LowLevelLifoSemaphore.WaitNative",
			"System.Threading.LowLevelLifoSemaphore.WaitForSignal", lifoWait, workerStart, callback),
			snapshot.IdleWorker},
		"worker that spins": {of("running", "System.Threading.LowLevelSpinWaiter.Wait", lifoWait, workerStart),
			snapshot.IdleWorker},
		"worker between two": {of("running", "System.Threading.Thread.UninterruptibleSleep0", workerStart),
			snapshot.IdleWorker},
		"worker at work": {of("running", "System.Threading.ThreadPoolWorkQueue.Dispatch", workerStart), ""},
		"worker that waits in an item": {of(futex, waitOne, "System.Threading.ThreadPoolWorkQueue.Dispatch",
			workerStart), ""},
		"incomplete":                           {incomplete, ""},
		"nothing but the method":               {of(futex, workerStart), ""},
		"worker that spins, inlined":           {of("running", workerStart, callback), snapshot.IdleWorker},
		"worker that spins in a stub, inlined": {of("running", "IL_STUB_PInvoke", workerStart), snapshot.IdleWorker},
		"worker whose method is compiled":      {compiling, ""},
		"timer thread at work":                 {of("running", timerThread), ""},
		"garbage collector at work":            {seen("", "GC", "running"), ""},
		"through a stub": {of(futex, "IL_STUB_PInvoke", lifoWait, workerStart),
			snapshot.IdleWorker},
		"timer": {of(futex, waitOne, "System.Threading.WaitHandle.WaitOne", timerThread),
			snapshot.IdleTimer},
		"timer that fires": {of("running", "System.Threading.ThreadPool.UnsafeQueueUserWorkItem",
			timerThread), ""},
		"timer of another":    {seen("Shop", "", futex, waitOne, timerThread), ""},
		"timer in other code": {called, ""},
		"wait":                {of(futex, waitOne, callback), ""},
		"sockets":             {sockets, snapshot.IdleSockets},
		"busy sockets":        {&busySockets, ""},
		"sockets of another": {seen("Shop", "", "waiting for I/O (epoll_wait)",
			"Interop+Sys.WaitForSocketEvents", "System.Net.Sockets.SocketAsyncEngine.EventLoop"), ""},
		"file watcher": {seen("System.IO.FileSystem.Watcher", "", "reading (read)", "Interop+Sys.Read",
			"System.IO.FileSystemWatcher+RunningInstance.TryReadEvent",
			"System.IO.FileSystemWatcher+RunningInstance.ProcessEvents"), snapshot.IdleFiles},
		"file watcher of .NET 11": {seen("System.IO.FileSystem.Watcher", "", "reading (read)", "Interop+Sys.Read",
			"System.IO.FileSystemWatcher+INotify.TryReadEvent",
			"System.IO.FileSystemWatcher+INotify.ProcessEvents"), snapshot.IdleFiles},
		"file watcher that tells": {seen("System.IO.FileSystem.Watcher", "", "reading (read)", "Interop+Sys.Read",
			"System.IO.FileSystemWatcher.OnChanged",
			"System.IO.FileSystemWatcher+RunningInstance.ProcessEvents"), ""},
		"Kestrel":                   {kestrel, snapshot.IdleKestrel},
		"Kestrel on .NET 11":        {kestrel11, snapshot.IdleKestrel},
		"host":                      {host, snapshot.IdleHost},
		"async Main":                {asyncly, snapshot.IdleMain},
		"async Main with a result":  {withResult, snapshot.IdleMain},
		"async Main, a task of it":  {inlined, ""},
		"Main that waits for tasks": {of(futex, taskWait, getTask, "Shop.Program.Main"), ""},
		"finalizer":                 {seen("", "Finalizer", futex), "finalizer"},
		"finalizer at work":         {seen("", "Finalizer", "running"), ""},
		"finalizer in a finalizer":  {seen("Shop", "Finalizer", futex, "Shop.Order.Finalize"), ""},
		"finalizer, a page fault":   {seen("", "Finalizer", "blocked in the kernel"), ""},
		"EventPipe that writes":     {seen("", "EventPipe", "writing (write)"), ""},
		"garbage collector":         {seen("", "GC", futex), ""},
		"thread without a role":     {seen("", "", futex), ""},
		"nothing":                   {&snapshot.Thread{Complete: true, State: futex, Role: "Finalizer"}, ""},
		"halted, with other states": {of("stopped by a signal", lifoWait, workerStart), snapshot.IdleWorker},
	} {
		if got := c.t.Idle(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.t.Role == "GC" && c.t.Waits() { // over some time, a GC thread waits for the next collection
			c.want = "garbage collector"
		}
		if got := recorded(c.t); got != c.want && len(c.t.Frames) > 0 {
			t.Errorf("%s, recorded: %q, want %q", name, got, c.want)
		}
	}
}

// recorded is the Idle of a recorded sample with a thread's stack.
func recorded(t *snapshot.Thread) snapshot.Idle {
	b := NewBuilder(Limits{})
	var locations []int32
	for i := range t.Frames {
		f := &t.Frames[i]
		name := Function{Kind: f.Kind, Module: f.Module, Method: f.Method}
		locations = append(locations, b.Location(Location{Function: b.Function(name)}))
	}
	x := Sample{Thread: b.Thread(RecordedThread{Role: t.Role}), Mode: Wall, Incomplete: !t.Complete}
	if t.Waits() {
		x.State = Waiting
	}
	x.Node = b.Stack(locations)
	b.Add(x)
	r := b.Recording()
	idle := r.Idle(&x)
	all := r.IdleTotals(x.Mode)
	if same := len(all) == 1 && all[0].Idle == idle && all[0].Total.All().Samples == 1; idle != "" && !same ||
		idle == "" && len(all) > 0 {
		return idle + ", but not in the sums"
	}
	return idle
}

// TestIdleOfDeepStacks: a recording with a sample in each frame of a deep stack takes linear time.
func TestIdleOfDeepStacks(t *testing.T) {
	const depth = 200_000
	b := NewBuilder(Limits{})
	b.Thread(RecordedThread{Role: "ThreadPool worker"})
	node := int32(0)
	add := func(f Function) {
		node = b.Child(node, b.Location(Location{Function: b.Function(f), Offset: uint64(node)}))
		b.Add(Sample{Weight: 1, Node: node, Mode: Wall, State: Waiting})
	}
	add(Function{Kind: snapshot.Managed, Module: coreLib, Method: workerStart})
	for range depth {
		add(Function{Kind: snapshot.Managed, Module: coreLib, Method: lifoWait})
	}
	for range depth {
		add(Function{Kind: snapshot.Native, Module: "libc.so.6"})
	}
	r := b.Recording()
	got := r.IdleTotals(Wall)
	if len(got) != 1 || got[0].Idle != snapshot.IdleWorker || got[0].Total.All().Samples != 2*depth {
		t.Errorf("%+v", got)
	}
	if left := r.Select(Selection{Working: true}); len(left.Samples) != 1 {
		t.Errorf("%d samples are left", len(left.Samples))
	}
}
