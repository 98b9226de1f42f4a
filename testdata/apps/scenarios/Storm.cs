// Everything at once, for soaks: workers besides the busy ones, and counts of what
// they made happen.
using System;
using System.Collections.Generic;
using System.Runtime;
using System.Threading;
using Common;

namespace Scenarios;

static class Storm
{
    public static readonly Worker[] All =
    [
        new("gc-kinds", StormMemory.GcKinds, 200 * 199 / 2),
        new("finalizers", StormMemory.Finalizers, 0),
        new("gc-handles", StormMemory.Handles, 33),
        new("large-objects", StormMemory.LargeObjects, 8),
        new("eh-storm", StormThrow.Nested, 20 * 19 / 2),
        new("eh-filters", StormThrow.Filters, 20),
        new("eh-faults", StormThrow.Faults, 7 * 3),
        new("eh-native", StormThrow.AroundNative, 9),
        new("eh-async", StormThrow.Async, 10 * 9 / 2),
        new("thread-micro", StormThreads.Microseconds, 8),
        new("pool", StormThreads.Pool, 2 * (64 * 63 / 2) + 28),
        new("locks", StormThreads.Locks, 1000, Threads: 3),
        new("generic-calls", StormThreads.GenericCalls, 500 * (10 + 16) + 2 * 1000 + 17),
        new("delegates", StormThreads.Delegates, 7000),
        new("gen-context", StormCode.InContext, 3),
        new("gen-emitted", StormCode.Emitted, 2),
        new("gen-dynamic", StormCode.DynamicMethods, 4, Threads: 2),
        new("gen-expression", StormCode.Expressions, 2),
        new("thread-work", StormThreads.Work, 8, OnlyByName: true),
    ];
}

/// <summary>What took place, for the report. Fields are added to without a lock.</summary>
static class Counts
{
    public static long Exceptions, Finalized, LatencyModes, NoGCRegions, Threads, DynamicMethods;
    static long loaded, unloaded, background, compacting;
    static long lastBackground, lastCompacting;
    static readonly Queue<WeakReference> toUnload = new();

    /// <summary>Set by whoever finds something wrong outside of a worker's round.</summary>
    public static volatile string Damaged;

    public static void Start() =>
        AppDomain.CurrentDomain.FirstChanceException += (_, _) => Interlocked.Increment(ref Exceptions);

    /// <summary>Counts o, an assembly or its context, as unloaded when it is gone.</summary>
    public static void WillUnload(object o)
    {
        lock (toUnload)
        {
            toUnload.Enqueue(new WeakReference(o, trackResurrection: true));
            loaded++;
        }
    }

    /// <summary>Looks which of them are gone, the oldest first.</summary>
    public static void NoteUnloaded()
    {
        lock (toUnload)
        {
            for (int n = toUnload.Count; n > 0; n--)
            {
                WeakReference r = toUnload.Dequeue();
                if (r.IsAlive) toUnload.Enqueue(r);
                else unloaded++;
            }
        }
    }

    /// <summary>The runtime counts collections by generation only; of these kinds it tells the latest.</summary>
    public static void NoteCollections()
    {
        GCMemoryInfo last = GC.GetGCMemoryInfo(GCKind.Background), full = GC.GetGCMemoryInfo(GCKind.FullBlocking);
        if (last.Index > lastBackground) background++;
        if (full.Index > lastCompacting && full.Compacted) compacting++;
        lastBackground = last.Index;
        lastCompacting = full.Index;
    }

    public static void Print()
    {
        (string Name, long Value)[] all =
        [
            ("exceptions", Exceptions),
            ("gen-0", GC.CollectionCount(0)), ("gen-1", GC.CollectionCount(1)), ("gen-2", GC.CollectionCount(2)),
            ("background", background), ("compacting", compacting),
            ("latency-modes", LatencyModes), ("no-gc-regions", NoGCRegions),
            ("finalized", Finalized), ("assemblies-loaded", loaded), ("assemblies-unloaded", unloaded),
            ("dynamic-methods", DynamicMethods), ("threads", Threads),
            ("methods-compiled", JitInfo.GetCompiledMethodCount()),
            ("server-gc", GCSettings.IsServerGC ? 1 : 0), ("working-set-mb", Environment.WorkingSet >> 20),
        ];
        foreach ((string name, long value) in all) App.Line($"COUNT {name} {value}");
    }
}
