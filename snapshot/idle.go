package snapshot

import (
	"iter"
	"strings"
)

// Idle says what kind of thread has nothing to do and waits for work. Empty: the thread works, waits for something
// else, or the kind is not known.
type Idle string

// The kinds of idle thread that managed frames tell.
const (
	IdleWorker  Idle = "pool worker"
	IdleGate    Idle = "pool gate"     // watches whether the pool needs more workers
	IdleWaiter  Idle = "pool waiter"   // waits for handles on behalf of RegisterWaitForSingleObject
	IdleTimer   Idle = "timer"         // waits until the next timer is due
	IdleSockets Idle = "socket events" // waits for any socket to become ready
	IdleFiles   Idle = "file watcher"  // waits for changes of files, on behalf of FileSystemWatcher
	IdleKestrel Idle = "Kestrel timer" // waits for the next second, on behalf of ASP.NET Core's web server
	IdleHost    Idle = "host"          // the main thread waits until the web server or service is told to end
	IdleMain    Idle = "async Main"    // the main thread waits until the task that Main returned has ended
)

// IdleRole is the kind of a thread of the runtime that waits for work in native code, by Thread.Role; "": no such
// thread.
func IdleRole(role string) Idle { return idleRoles[role] }

// idleRoles are the kinds by role. The threads of the garbage collector are missing: in the middle of a collection
// these threads wait for one another.
var idleRoles = map[string]Idle{
	"Finalizer":               "finalizer",
	"Tiered compilation":      "tiered compilation",
	"EventPipe":               "EventPipe",
	"Debugger":                "debugger",
	"Debugger transport":      "debugger transport",
	"Signal handler":          "signal handler",
	"Synchronisation manager": "synchronisation manager",
}

// Idle returns what kind of idle thread t is.
//
// Idle judges by the frames: the thread's start method is the runtime's own, and the method has called nothing but a
// wait of the runtime. A pool worker is idle as well while the worker spins for a moment before a wait, or between
// two pieces of work. A thread without managed frames is known by its role, and idle if blocked; Idle does not look
// at what the runtime's native code waits for.
func (t *Thread) Idle() Idle {
	if !t.Complete {
		return ""
	}
	idle, managed := IdleIn(func(yield func(Code) bool) {
		for i := range t.Depth() {
			if f := t.Frame(i); !f.Inlined && !yield(Code{f.Kind, f.Module, f.Method}) {
				return
			}
		}
	}, t.Waits())
	if !managed && t.Depth() > 0 && t.Waits() {
		return IdleRole(t.Role)
	}
	return idle
}

// Waits reports whether the thread was blocked in a system call that waits for an event.
func (t *Thread) Waits() bool {
	verb, _, _ := strings.Cut(t.State, " (")
	return waits[verb]
}

var waits = map[string]bool{
	"waiting": true, "waiting for I/O": true, "waiting for a signal": true, "sleeping": true,
	"reading": true, "receiving": true, "accepting": true, "opening": true,
}

// Code is code on a stack, as far as waits and idle threads need the code: of a Frame, or of a function in a recording.
type Code struct {
	Kind           Kind
	Module, Method string // as in Frame
}

// IdleThread is a kind of thread of the runtime.
type IdleThread struct {
	Idle    Idle
	module  string
	callees []string // what the start method calls to wait; prefixes of names; empty: anything that waits
	blocked bool     // idle only if blocked
	spins   []string // what the start method calls to spin, if not blocked; the JIT compiler can inline both
}

const (
	coreLib   = "System.Private.CoreLib"
	jitModule = "libclrjit.so"
)

// idleThreads are the start methods of the runtime's own threads, from .NET 8 on, in PortableThreadPool.*.cs and
// TimerQueue.Portable.cs in src/libraries/System.Private.CoreLib/src/System/Threading, SocketAsyncEngine.Unix.cs in
// src/libraries/System.Net.Sockets, FileSystemWatcher.Linux.cs in src/libraries/System.IO.FileSystem.Watcher, and
// HostingAbstractionsHostExtensions.cs in src/libraries/Microsoft.Extensions.Hosting.Abstractions; Heartbeat.cs in
// src/Servers/Kestrel of ASP.NET Core.
var idleThreads = map[string]*IdleThread{
	"System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart": {
		IdleWorker, coreLib, []string{"System.Threading.LowLevelLifoSemaphore"}, false, []string{
			"System.Threading.LowLevelSpinWaiter.", "System.Threading.Thread.UninterruptibleSleep0",
			"System.Threading.Thread.SpinWait", "System.Threading.Thread.Yield", "System.Threading.Backoff.",
			"System.Threading.Thread.Sleep", "IL_STUB_PInvoke",
		},
	},
	"System.Threading.PortableThreadPool+GateThread.GateThreadStart": {
		IdleGate, coreLib, []string{"System.Threading.WaitHandle."}, false, nil,
	},
	"System.Threading.PortableThreadPool+WaitThread.WaitThreadStart": {
		IdleWaiter, coreLib, []string{"System.Threading.WaitHandle."}, false, nil,
	},
	"System.Threading.TimerQueue.TimerThread": {
		IdleTimer, coreLib, []string{"System.Threading.WaitHandle."}, false, nil,
	},
	"System.Net.Sockets.SocketAsyncEngine.EventLoop": {IdleSockets, "System.Net.Sockets", nil, true, nil},
	"System.IO.FileSystemWatcher+RunningInstance.ProcessEvents": {
		IdleFiles, "System.IO.FileSystem.Watcher", nil, true, nil,
	},
	"System.IO.FileSystemWatcher+INotify.ProcessEvents": { // .NET 11
		IdleFiles, "System.IO.FileSystem.Watcher", nil, true, nil,
	},
	"Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Infrastructure.Heartbeat.TimerLoop": {
		IdleKestrel, "Microsoft.AspNetCore.Server.Kestrel.Core",
		[]string{"System.Threading.ManualResetEventSlim."}, true, nil,
	},
	"Microsoft.Extensions.Hosting.HostingAbstractionsHostExtensions.Run": {
		IdleHost, "Microsoft.Extensions.Hosting.Abstractions", awaited, true, nil,
	},
}

// asyncMain is the thread of a program with an asynchronous Main. The method is the entry point that the C# compiler
// makes, with a name that nobody can write.
var asyncMain = &IdleThread{IdleMain, "", awaited, true, nil}

const asyncMainMethod = ".<Main>"

// awaited are the beginnings of methods that wait for a task, with or without a result, and of the method that the
// entry point of an asynchronous Main calls from .NET 11 on (AsyncHelpers.HandleAsyncEntryPoint).
var awaited = []string{
	"System.Runtime.CompilerServices.TaskAwaiter.", "System.Runtime.CompilerServices.TaskAwaiter`1.",
	"System.Threading.Tasks.Task.", "System.Threading.Tasks.Task`1.", entryPoint,
}

const entryPoint = "System.Runtime.CompilerServices.AsyncHelpers.HandleAsyncEntryPoint"

// waiting are the beginnings of the methods in which idle threads wait. None of these methods calls code of the
// program, other than Task.InternalWait: that is a frame of its own.
var waiting = []string{
	"System.Threading.LowLevelLifoSemaphore.", "System.Threading.LowLevelLifoSemaphoreBase.",
	"System.Threading.LowLevelSpinWaiter.", "System.Threading.LowLevelThreadBlocker.",
	"System.Threading.LowLevelMonitor.", "System.Threading.LowLevelFutex.", "System.Threading.Backoff.",
	"System.Threading.WaitHandle.", "System.Threading.WaitSubsystem.", "System.Threading.WaitSubsystem+",
	"System.Threading.Thread.SpinWait", "System.Threading.Thread.UninterruptibleSleep0",
	"System.Threading.Thread.Sleep", "System.Threading.Thread.Yield",
	"System.Threading.ManualResetEventSlim.Wait", "System.Threading.Monitor.Wait",
	"System.Threading.Condition.Wait", "System.Threading.Lock.Wait", "Interop+Sys.LowLevel",
	"System.Runtime.CompilerServices.TaskAwaiter.", "System.Runtime.CompilerServices.TaskAwaiter`1.",
	"System.Threading.Tasks.Task.InternalWait", "System.Threading.Tasks.Task.SpinThenBlockingWait",
	"System.Threading.Tasks.Task`1.GetResultCore", entryPoint,
}

// IdleThread is the kind of thread that starts with a method; nil: none.
func (c *Code) IdleThread() *IdleThread {
	if t := idleThreads[c.Method]; t != nil && t.module == c.Module {
		return t
	}
	if strings.HasSuffix(c.Method, asyncMainMethod) {
		return asyncMain
	}
	return nil
}

// IdleWait reports whether a frame can be part of a wait of an IdleThread.
func (c *Code) IdleWait() bool {
	switch c.Method {
	case "IL_STUB_PInvoke": // the native code that waits is below
		return true
	case "Interop+Sys.WaitForSocketEvents":
		return c.Module == "System.Net.Sockets"
	case "Interop+Sys.Read", "System.IO.FileSystemWatcher+RunningInstance.TryReadEvent",
		"System.IO.FileSystemWatcher+INotify.TryReadEvent":
		return c.Module == "System.IO.FileSystem.Watcher"
	}
	return c.Module == coreLib && hasPrefix(c.Method, waiting)
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// IdleIn returns what kind of idle thread has a complete stack, leaf first. Inlined methods are left out. blocked: the
// thread waits in a system call. managed: the stack has managed frames; without any, only the role of the thread tells
// (IdleRole).
func IdleIn(frames iter.Seq[Code], blocked bool) (idle Idle, managed bool) {
	callee, compiles := "", false
	for c := range frames {
		switch {
		case c.Kind == Async:
			continue // not on the stack
		case c.Kind == Native || c.Kind == Kernel:
			compiles = compiles || !managed && c.Module == jitModule
			continue
		case c.Kind != Managed: // an event
			return "", true
		}
		if t := c.IdleThread(); t != nil {
			if t.WaitsIn(callee, blocked) && !compiles {
				return t.Idle, true
			}
			return "", true
		}
		if managed = true; !c.IdleWait() {
			return "", true
		}
		callee = c.Method
	}
	return "", managed
}

// WaitsIn reports whether a thread waits for work in the callee of its start method. callee "" stands for native
// code, or nothing.
func (t *IdleThread) WaitsIn(callee string, blocked bool) bool {
	if t.spins != nil && !blocked && (callee == "" || hasPrefix(callee, t.spins)) {
		return true
	}
	return (t.callees == nil || hasPrefix(callee, t.callees)) && (blocked || !t.blocked)
}
