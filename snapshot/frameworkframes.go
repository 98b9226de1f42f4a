package snapshot

import (
	"cmp"
	"slices"
	"strings"
)

// frameworkParts are the parts of .NET that only lead from a thread to the program's code and back, from .NET 8 on, as
// beginnings of method names. The table has neither the methods in which a thread waits, nor methods that work for
// the program, for example serializers. A method belongs to the first part that fits.
//
// The sources are Thread.cs, ThreadPoolWorkQueue.cs, PortableThreadPool*.cs, TimerQueue*.cs and the folders
// Threading/Tasks and Runtime/CompilerServices of src/libraries/System.Private.CoreLib/src/System,
// src/libraries/System.Net.Sockets and System.IO.Pipelines of dotnet/runtime; dotnet/aspnetcore.
var frameworkParts = []FrameworkPart{
	{Name: partThread, Implied: started, methods: []string{
		"System.Threading.Thread.StartCallback", "System.Threading.Thread+StartHelper.",
	}},
	{Name: partPool, methods: []string{
		"System.Threading.PortableThreadPool+WorkerThread.", "System.Threading.PortableThreadPool+IOCompletion",
		"System.Threading.ThreadPoolWorkQueue.", "System.Threading.ThreadPool+",
		"System.Threading.QueueUserWorkItemCallback",
		"System.Threading._ThreadPoolWaitCallback.", "System.Threading._ThreadPoolWaitOrTimerCallback.",
		"System.Threading.CompleteWaitThreadPoolWorkItem.", "System.Threading.ThreadPoolTypedWorkItemQueue",
	}},
	{Name: partTimer, methods: []string{
		"System.Threading.TimerQueue.", "System.Threading.TimerQueueTimer.", "System.Threading.PeriodicTimer+",
	}},
	{Name: partTasks, Implied: served, methods: []string{
		"System.Threading.ExecutionContext.Run", "System.Threading.ExecutionContext+",
		"System.Runtime.CompilerServices.AsyncTaskMethodBuilder",
		"System.Runtime.CompilerServices.AsyncValueTaskMethodBuilder",
		"System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder",
		"System.Runtime.CompilerServices.AsyncVoidMethodBuilder",
		"System.Runtime.CompilerServices.AsyncIteratorMethodBuilder",
		"System.Runtime.CompilerServices.AsyncMethodBuilderCore",
		"System.Runtime.CompilerServices.AsyncHelpers", "System.Runtime.CompilerServices.AsyncProfiler",
		"System.Runtime.CompilerServices.AsyncStateMachineDispatcher", resumeStub,
		"System.Runtime.CompilerServices.TaskAwaiter+", "System.Runtime.CompilerServices.YieldAwaitable+",
		"System.Threading.Tasks.AwaitTaskContinuation", "System.Threading.Tasks.ContinuationTaskFrom",
		"System.Threading.Tasks.ContinueWithTaskContinuation", "System.Threading.Tasks.ContinuationResultTaskFrom",
		"System.Threading.Tasks.SynchronizationContextAwaitTaskContinuation",
		"System.Threading.Tasks.TaskSchedulerAwaitTaskContinuation",
		"System.Threading.Tasks.StandardTaskContinuation", "System.Threading.Tasks.TaskContinuation",
		"System.Threading.Tasks.UnwrapPromise", "System.Threading.Tasks.TaskCompletionSource",
		"System.Threading.Tasks.ThreadPoolTaskScheduler.", "System.Threading.Tasks.TaskScheduler.",
		"System.Threading.Tasks.Task+", "System.Threading.Tasks.Task`1+", "System.Threading.Tasks.TaskFactory+",
		"System.Threading.Tasks.Task.Execute", "System.Threading.Tasks.Task.Finish",
		"System.Threading.Tasks.Task.RunContinuations", "System.Threading.Tasks.Task.RunOrQueue",
		"System.Threading.Tasks.Task.InnerInvoke", "System.Threading.Tasks.Task`1.InnerInvoke",
		"System.Threading.Tasks.Task.TrySet", "System.Threading.Tasks.Task`1.TrySet",
		"System.Threading.Tasks.Sources.",
	}},
	{Name: partSockets, Implied: served, methods: []string{
		"System.Net.Sockets.SocketAsyncEngine", "System.Net.Sockets.SocketAsyncContext+",
		"System.Net.Sockets.SocketAsyncContext.Handle", "System.Net.Sockets.SocketAsyncContext.Process",
		"System.Net.Sockets.SocketAsyncEventArgs.TransferCompletion",
		"System.Net.Sockets.SocketAsyncEventArgs.OnCompleted",
		"System.Net.Sockets.Socket+AwaitableSocketAsyncEventArgs.OnCompleted",
		"System.Net.Sockets.Socket+AwaitableSocketAsyncEventArgs.InvokeContinuation",
	}},
	{Name: partWait, methods: []string{ // from .NET 11 on, between a primitive and the native code that blocks
		"System.Threading.WaitSubsystem", "System.Threading.LowLevelMonitor.", "System.Threading.Condition.Wait",
		"System.Threading.WaitHandle.WaitOneNoCheck", "System.Threading.WaitHandle.WaitOneCore",
		"System.Threading.Lock.TryEnterSlow",
	}},
	{Name: partPipelines, Implied: served, methods: []string{"System.IO.Pipelines."}},
	{Name: partKestrel, methods: []string{"Microsoft.AspNetCore.Server.Kestrel.", "Microsoft.AspNetCore.Connections."}},
	{Name: partASPNET, methods: []string{"Microsoft.AspNetCore."}},
	{Name: partHost, methods: []string{"Microsoft.Extensions.Hosting."}},
}

const (
	partThread, partPool, partTimer, partTasks = "thread", "pool", "timer", "tasks"
	partSockets, partPipelines, partWait       = "sockets", "pipelines", "wait"
	partKestrel, partASPNET, partHost          = "Kestrel", "ASP.NET", "host"
)

// resumeStub is the runtime's own code that resumes a suspended method (.NET 11).
const resumeStub = "IL_STUB_AsyncResume"

// Parts that imply the ubiquitous parts.
var started, served = []string{partPool, partTimer}, []string{partKestrel, partASPNET, partHost}

// FrameworkPart is a part of .NET with framework frames.
type FrameworkPart struct {
	Name    string
	Implied []string // a run through one of these parts does not mention the part

	methods []string
}

// FrameworkParts returns all parts.
func FrameworkParts() []FrameworkPart { return slices.Clone(frameworkParts) }

// FrameworkPart returns the part of .NET of f, for example "pool" or "Kestrel", if f is a framework frame; "" if not.
// Framework frames lead from a thread to the program's code.
func (f *Frame) FrameworkPart() string {
	return FrameworkPartOf(f.Kind, cmp.Or(f.Method, f.Display), f.Origin())
}

// FrameworkPartOf is the part of .NET of a method, if the method's frames are framework frames; "" if not. method is
// the exact name, or else the name for display.
func FrameworkPartOf(kind Kind, method string, origin Origin) string {
	if kind != Managed && kind != Async || origin != OfFramework {
		return ""
	}
	if !strings.HasPrefix(method, "System.") && !strings.HasPrefix(method, "Microsoft.") && method != resumeStub {
		return ""
	}
	for i := range frameworkParts {
		if hasPrefix(method, frameworkParts[i].methods) {
			return frameworkParts[i].Name
		}
	}
	return ""
}

// MinFold is the minimum number of frames in a Fold.
const MinFold = 3

// Fold is a run of framework frames.
type Fold struct {
	First, Frames int    // indices in the stack, leaf first
	Parts         string // the parts of .NET in the run, from the base to the leaf: "pool → Kestrel → ASP.NET"
}

// Folds finds the runs of framework frames in a stack, leaf first. No run contains the leaf, nor the managed frame
// nearest to the leaf, so that the thread's work stays visible.
func Folds(frames []Frame) []Fold {
	var folds []Fold
	at := 1 + slices.IndexFunc(frames, func(f Frame) bool { return f.Kind == Managed })
	if at == 0 {
		return nil
	}
	for at < len(frames) {
		end, parts := at, []string(nil)
		for ; end < len(frames); end++ {
			part := frameworkPartAt(frames, end)
			if part == "" {
				break
			}
			parts = append(parts, part)
		}
		if end-at >= MinFold {
			slices.Reverse(parts)
			folds = append(folds, Fold{at, end - at, JoinFrameworkParts(parts)})
		}
		at = max(end, at+1)
	}
	return folds
}

// frameworkPartAt is the FrameworkPart of a frame in a stack. An inlined method of .NET is a framework frame by itself,
// or if its frame is.
func frameworkPartAt(frames []Frame, i int) string {
	part := frames[i].FrameworkPart()
	for part == "" && i+1 < len(frames) && frames[i].Inlined && frames[i].Origin() == OfFramework {
		i++
		part = frames[i].FrameworkPart()
	}
	return part
}

// JoinFrameworkParts describes a run of framework frames by its parts, base first: each part once, without implied
// parts.
func JoinFrameworkParts(parts []string) string {
	var out []string
	for _, p := range parts {
		if slices.Contains(out, p) {
			continue
		}
		i := slices.IndexFunc(frameworkParts, func(t FrameworkPart) bool { return t.Name == p })
		implied := func(by string) bool { return slices.Contains(parts, by) }
		if i < 0 || !slices.ContainsFunc(frameworkParts[i].Implied, implied) {
			out = append(out, p)
		}
	}
	return strings.Join(out, " → ")
}
