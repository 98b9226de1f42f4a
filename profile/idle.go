package profile

import (
	"cmp"
	"iter"
	"slices"
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

// idleRoles are the threads of the runtime that wait for work in native code, by Thread.Role. The threads of the
// garbage collector are missing: in the middle of a collection these threads wait for one another.
var idleRoles = map[string]Idle{
	"Finalizer":               "finalizer",
	"Tiered compilation":      "tiered compilation",
	"EventPipe":               "EventPipe",
	"Debugger":                "debugger",
	"Debugger transport":      "debugger transport",
	"Signal handler":          "signal handler",
	"Synchronisation manager": "synchronisation manager",
}

// collectors are the threads of the garbage collector, by RecordedThread.Role. Over some time, other than at one
// moment, a waiting collector thread nearly always waits for the next collection. During a collection the threads
// spin before they wait.
var collectors = map[string]Idle{"GC": "garbage collector", "Background GC": "garbage collector"}

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
	idle, managed := idleStack(func(yield func(code) bool) {
		for i := range t.Depth() {
			if f := t.Frame(i); !f.Inlined && !yield(code{f.Kind, f.Module, f.Method}) {
				return
			}
		}
	}, t.Waits())
	if !managed && t.Depth() > 0 && t.Waits() {
		return idleRoles[t.Role]
	}
	return idle
}

// Idle is Thread.Idle of the sampled thread, at that moment. A blocked thread of the garbage collector is idle, too.
func (r *Recording) Idle(x *Sample) Idle {
	idle, managed := idleStack(func(yield func(code) bool) {
		for l := range r.Stack(r.waits(x)) {
			f := &r.Functions[l.Function]
			if !l.Inlined && !f.noCode() && !yield(code{f.Kind, f.Module, f.Method}) {
				return
			}
		}
	}, x.State == Waiting)
	switch {
	case !managed:
		return r.idleRole(x)
	case x.Incomplete:
		return ""
	}
	return idle
}

// waits returns the node of the code in which a thread waits. In mode Waits the leaf is an event that names the wait.
func (r *Recording) waits(x *Sample) int32 {
	if f := r.Function(x.Node); x.Mode == Waits && f != nil && f.Kind == Event {
		return r.Nodes[x.Node].Parent
	}
	return x.Node
}

// idleRole is Idle of a sample without managed frames.
func (r *Recording) idleRole(x *Sample) Idle {
	role := r.Threads[x.Thread].Role
	switch {
	case x.State != Waiting:
		return ""
	case x.Incomplete || x.Node == 0: // the finalizer could be in a method of the program
		return collectors[role]
	}
	return cmp.Or(idleRoles[role], collectors[role])
}

// idler finds the samples of idle threads. For a stack, idler and idleStack agree, but idler looks at each node once:
// stacks can be deep, and have most of their frames in common.
type idler struct {
	r *Recording
	// By node: the node itself or the nearest node toward the base that is a method or an event; 0: none.
	code []int32
	jit  []bool           // by node: the compiler runs, called by that method
	idle [2][]*idleThread // by thread state and node of a method: the idle thread if the method is the leaf
}

// idleFunction has the known facts of a function.
type idleFunction struct {
	kind   Kind
	noCode bool
	jit    bool
	thread *idleThread             // the kind of thread that starts with the function
	waits  bool                    // the function is a part of waits
	idle   [2]map[*idleThread]bool // by thread state: the threads that are idle if they called the function
}

func (r *Recording) idler() *idler {
	d := &idler{r: r, code: make([]int32, len(r.Nodes)), jit: make([]bool, len(r.Nodes))}
	functions := make([]idleFunction, len(r.Functions))
	for i := range functions {
		functions[i] = idleFunctionOf(&r.Functions[i])
	}
	for s := range d.idle {
		d.idle[s] = make([]*idleThread, len(r.Nodes))
	}
	for n := 1; n < len(r.Nodes); n++ { // a parent comes before its children
		f := &functions[r.Locations[r.Nodes[n].Location].Function]
		parent := r.Nodes[n].Parent
		if r.inlined(int32(n)) {
			d.code[n], d.jit[n] = d.code[parent], d.jit[parent]
			continue
		}
		if f.kind == Native || f.kind == Kernel || f.noCode {
			d.code[n], d.jit[n] = d.code[parent], d.jit[parent] || f.jit
			continue
		}
		d.code[n] = int32(n)
		caller := d.code[parent]
		var called *idleThread
		if caller > 0 {
			called = functions[r.Locations[r.Nodes[caller].Location].Function].thread
		}
		for s := range d.idle {
			switch {
			case f.thread != nil && f.thread.waitsIn("", State(s) == Waiting):
				d.idle[s][n] = f.thread
			case f.thread != nil || !f.waits || caller == 0:
			case called == nil:
				d.idle[s][n] = d.idle[s][caller]
			case f.idle[s][called]:
				d.idle[s][n] = called
			}
		}
	}
	return d
}

func idleFunctionOf(f *Function) idleFunction {
	c := code{f.Kind, f.Module, f.Method}
	out := idleFunction{kind: f.Kind, noCode: f.noCode(), jit: f.Module == jitModule && f.Kind == Native}
	if f.Kind != Managed {
		return out
	}
	if out.thread = c.thread(); out.thread != nil {
		return out
	}
	if out.waits = c.waits(); out.waits {
		for s := range out.idle {
			blocked := State(s) == Waiting
			out.idle[s] = map[*idleThread]bool{asyncMain: asyncMain.waitsIn(f.Method, blocked)}
			for _, t := range idleThreads {
				out.idle[s][t] = t.waitsIn(f.Method, blocked)
			}
		}
	}
	return out
}

func (d *idler) of(x *Sample) Idle {
	leaf := d.r.waits(x)
	code := d.code[leaf]
	if code > 0 {
		if t := d.idle[x.State&1][code]; t != nil && !x.Incomplete && !d.jit[leaf] {
			return t.idle
		}
		return ""
	}
	return d.r.idleRole(x)
}

// IdleTotal is the samples of one kind of idle thread in one mode.
type IdleTotal struct {
	Idle  Idle
	Total Part
}

// IdleTotals sums up a mode's samples of idle threads by kind, the largest first.
func (r *Recording) IdleTotals(m Mode) []IdleTotal {
	d, sums := r.idler(), map[Idle]*Part{}
	for i := range r.Samples {
		x := &r.Samples[i]
		if x.Mode != m {
			continue
		}
		if idle := d.of(x); idle != "" {
			if sums[idle] == nil {
				sums[idle] = &Part{}
			}
			sums[idle][x.State].Add(Amount{x.Weight, x.Events, int(x.Count)})
		}
	}
	var out []IdleTotal
	for idle, sum := range sums {
		out = append(out, IdleTotal{idle, *sum})
	}
	slices.SortFunc(out, func(a, b IdleTotal) int {
		return cmp.Or(cmp.Compare(b.Total.All().Weight, a.Total.All().Weight), cmp.Compare(a.Idle, b.Idle))
	})
	return out
}

// IdleSamples returns the indices of the samples of idle threads, by kind.
func (r *Recording) IdleSamples() map[Idle][]int32 {
	d, out := r.idler(), map[Idle][]int32{}
	for i := range r.Samples {
		if idle := d.of(&r.Samples[i]); idle != "" {
			out[idle] = append(out[idle], int32(i))
		}
	}
	return out
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

// code is the part of a frame that idle detection looks at.
type code struct {
	kind           Kind
	module, method string
}

// idleThread is a kind of thread of the runtime.
type idleThread struct {
	idle    Idle
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
var idleThreads = map[string]*idleThread{
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
var asyncMain = &idleThread{IdleMain, "", awaited, true, nil}

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

// thread is the kind of thread that starts with a method; nil: none.
func (c *code) thread() *idleThread {
	if t := idleThreads[c.method]; t != nil && t.module == c.module {
		return t
	}
	if strings.HasSuffix(c.method, asyncMainMethod) {
		return asyncMain
	}
	return nil
}

// waits reports whether a frame can be part of a wait of a runtime thread.
func (c *code) waits() bool {
	switch c.method {
	case "IL_STUB_PInvoke": // the native code that waits is below
		return true
	case "Interop+Sys.WaitForSocketEvents":
		return c.module == "System.Net.Sockets"
	case "Interop+Sys.Read", "System.IO.FileSystemWatcher+RunningInstance.TryReadEvent",
		"System.IO.FileSystemWatcher+INotify.TryReadEvent":
		return c.module == "System.IO.FileSystem.Watcher"
	}
	return c.module == coreLib && hasPrefix(c.method, waiting)
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// idleStack looks at a stack, leaf first. managed: the stack has managed frames.
func idleStack(frames iter.Seq[code], blocked bool) (idle Idle, managed bool) {
	callee, compiles := "", false
	for c := range frames {
		switch {
		case c.kind == Async:
			continue // not on the stack
		case c.kind == Native || c.kind == Kernel:
			compiles = compiles || !managed && c.module == jitModule
			continue
		case c.kind != Managed: // an event
			return "", true
		}
		if t := c.thread(); t != nil {
			if t.waitsIn(callee, blocked) && !compiles {
				return t.idle, true
			}
			return "", true
		}
		if managed = true; !c.waits() {
			return "", true
		}
		callee = c.method
	}
	return "", managed
}

// waitsIn reports whether a thread waits for work in the callee of its start method. callee "" stands for native
// code, or nothing.
func (t *idleThread) waitsIn(callee string, blocked bool) bool {
	if t.spins != nil && !blocked && (callee == "" || hasPrefix(callee, t.spins)) {
		return true
	}
	return (t.callees == nil || hasPrefix(callee, t.callees)) && (blocked || !t.blocked)
}
