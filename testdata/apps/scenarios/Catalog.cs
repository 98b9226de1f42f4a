using System;
using System.Collections.Generic;

namespace Scenarios;

/// <summary>Every scenario by name. Names are thread names: 15 bytes at most.</summary>
static class Catalog
{
    public static readonly Scenario[] All =
    [
        new("block", Here.Block),
        new("deep-recursion", () => Calls.Deep(1000)),
        new("lambda", Calls.Lambda),
        new("closure", () => Calls.Closure(3)),
        new("local-func", () => Calls.LocalFunction(2)),
        new("iterator", Calls.Iterator),
        new("linq", Calls.Linq),
        new("iface-dispatch", Calls.InterfaceDispatch),
        new("iface-castable", Calls.CastableDispatch),
        new("virtual-call", Calls.VirtualCall),
        new("delegate-open", Calls.OpenDelegate),
        new("delegate-closed", Calls.ClosedDelegate),
        new("multicast", Calls.Multicast),
        new("unbox-stub", Calls.UnboxingStub),
        new("tail-explicit", Dynamic.ExplicitTailCall),
        new("cctor", Calls.StaticConstructor),
        new("reflection", Calls.Reflection),
        new("activator", Calls.ByActivator),
        new("stackalloc", () => Calls.StackAlloc(3000)),
        new("page-frame", Calls.PageFrame),
        new("large-frame", Calls.LargeFrame),

        new("gen-ref", Generics.OverReference),
        new("gen-value", Generics.OverValue),
        new("gen-struct", Generics.InStruct),
        new("gen-method", Generics.Method),
        new("gen-nested", Generics.Nested),
        new("gen-virtual", Generics.Virtual),
        new("gen-iface", Generics.Interface),

        new("dynamic-method", Dynamic.Method),
        new("expression", Dynamic.Expression),
        new("run-and-collect", Dynamic.RunAndCollect),
        new("collectible-alc", Dynamic.CollectibleContext),

        new("pinvoke-sleep", Native.Sleep, Native: true),
        new("pinvoke-poll", Native.Poll, Native: true),
        new("pinvoke-read", Native.Read, Native: true),
        new("pinvoke-shared", Native.SleepByStub, Native: true),
        new("pinvoke-string", Native.Write, Native: true),
        new("calli-read", Native.ReadByPointer, Native: true),
        new("qsort-fnptr", Native.SortByFunctionPointer),
        new("qsort-delegate", Native.SortByDelegate),
        new("qsort-sleep", Native.SortAndSleep, Native: true),

        new("deep-stack", () => Calls.Deep(12_000), Flag: "deep-stack"),
        new("signal-stack", Native.OnSignalStack, Flag: "signal-stack"),

        new("eh-filter", Exceptions.Filter),
        new("eh-catch", Exceptions.Catch),
        new("eh-catch-deep", Exceptions.CatchDeep),
        new("eh-finally", Exceptions.Finally),
        new("eh-nested", Exceptions.Nested),
        new("eh-rethrow", Exceptions.Rethrow),
        new("eh-using", Exceptions.Using),
        new("eh-fault", Dynamic.Fault),
        new("eh-null", Exceptions.NullReference),
        new("eh-filter-throw", Exceptions.FilterThrows),
        new("finally-normal", Exceptions.FinallyWithoutException),

        new("names-fsharp", Languages.FSharp),
        new("names-vb", Languages.VisualBasic),

        new("monitor-owner", Locks.MonitorOwner),
        new("monitor-waiter", Locks.MonitorWaiter),
        new("monitor-wait", Locks.MonitorWait),
        new("lock-waiter", Locks.LockWaiter),
        new("rwlock", Locks.ReaderWriter),
        new("semaphore", Locks.Semaphore),
        new("mres", Locks.ManualResetEvent),
        new("sleep", Locks.Sleep),
        new("join", Locks.Join),
        new("task-wait", Locks.TaskWait),

        new("async-blocked", Async.Blocked),
        new("async-resumed", Async.Resumed, Elsewhere: true),
        new("async-lambda", () => Async.Lambdas([1, 2])),
        new("async-pending", Async.Pending, Silent: true),
        new("pool-worker", Async.PoolWorker, Elsewhere: true),
        new("timer", Async.TimerCallback, Elsewhere: true),
        new("finalizer", Async.Finalizer, Elsewhere: true, Flag: "finalizer"),
    ];
}
