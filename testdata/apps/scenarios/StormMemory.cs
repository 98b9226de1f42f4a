// Storm workers that make every kind of garbage collection happen, and check
// that their objects come out of it unchanged.
using System;
using System.Collections.Generic;
using System.Runtime;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Scenarios;

static class StormMemory
{
    static int turn;

    /// <summary>Induces one kind of collection after the other around a list, which must survive each.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long GcKinds()
    {
        var list = new LinkedList<int[]>();
        for (int i = 0; i < 200; i++) list.AddLast(new[] { i, -i });
        Action[] kinds =
        [
            () => GC.Collect(0), () => GC.Collect(1), Background, Compacting,
            () => GC.Collect(2, GCCollectionMode.Optimized), () => GC.Collect(0), CompactLargeObjects,
            () => Latency(GCLatencyMode.SustainedLowLatency), () => GC.Collect(1),
            () => Latency(GCLatencyMode.Batch), NoCollection, Background, LowLatency, Aggressive,
        ];
        kinds[turn++ % kinds.Length]();
        Counts.NoteCollections();
        long sum = 0;
        foreach (int[] pair in list) sum += pair[0] * 2 + pair[1];
        Thread.Sleep(3);
        return sum;
    }

    static void Background() => GC.Collect(2, GCCollectionMode.Forced, blocking: false);

    static void Compacting() => GC.Collect(2, GCCollectionMode.Forced, blocking: true, compacting: true);

    // Gives memory back to the system, which costs: only now and then.
    static void Aggressive()
    {
        if (turn % 8 == 0) GC.Collect(2, GCCollectionMode.Aggressive, blocking: true, compacting: true);
    }

    static void CompactLargeObjects()
    {
        GCSettings.LargeObjectHeapCompactionMode = GCLargeObjectHeapCompactionMode.CompactOnce;
        Compacting();
    }

    static void Latency(GCLatencyMode mode)
    {
        GCLatencyMode before = GCSettings.LatencyMode;
        GCSettings.LatencyMode = mode;
        Fill(2_000);
        GCSettings.LatencyMode = before;
        Interlocked.Increment(ref Counts.LatencyModes);
    }

    // The server GC has no such mode and ignores the setting.
    static void LowLatency() => Latency(GCLatencyMode.LowLatency);

    // Another thread's allocations or induced collections may end the region early.
    static void NoCollection()
    {
        try
        {
            if (!GC.TryStartNoGCRegion(1 << 20)) return;
            Fill(100);
            GC.EndNoGCRegion();
            Interlocked.Increment(ref Counts.NoGCRegions);
        }
        catch (InvalidOperationException) { }
    }

    static void Fill(int n)
    {
        for (int i = 0; i < n; i++) GC.KeepAlive(new byte[64 + i % 100]);
    }

    sealed class Finalized(int value)
    {
        readonly int value = value, twice = value * 2;
        bool resurrected;

        ~Finalized()
        {
            if (value * 2 != twice) Counts.Damaged = "a finalizer met a damaged object";
            Interlocked.Increment(ref Counts.Finalized);
            if (value % 16 != 0 || resurrected) return;
            resurrected = true;
            GC.ReRegisterForFinalize(this);
        }
    }

    /// <summary>Objects that end in the finalizer, some of them twice.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Finalizers()
    {
        for (int i = 0; i < 200; i++) GC.KeepAlive(new Finalized(i));
        Thread.Sleep(2);
        return 0;
    }

    /// <summary>Pinned arrays must keep their address, weak and dependent handles their targets.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static unsafe long Handles()
    {
        var pinned = new GCHandle[32];
        var addresses = new nint[32];
        var keep = new object[32];
        var shorts = new WeakReference<object>[32];
        var longs = new GCHandle[32];
        var table = new ConditionalWeakTable<object, string>();
        for (int i = 0; i < 32; i++)
        {
            var bytes = new byte[100 * (i + 1)];
            bytes[^1] = (byte)i;
            pinned[i] = GCHandle.Alloc(bytes, GCHandleType.Pinned);
            addresses[i] = pinned[i].AddrOfPinnedObject();
            keep[i] = new object();
            shorts[i] = new WeakReference<object>(keep[i]);
            longs[i] = GCHandle.Alloc(keep[i], GCHandleType.WeakTrackResurrection);
            table.Add(keep[i], i.ToString());
        }
        byte[] heap = GC.AllocateArray<byte>(5000, pinned: true);
        fixed (byte* first = heap)
        {
            GC.Collect(0);
            Fill(200);
            first[4999] = 1;
        }
        long right = heap[4999];
        for (int i = 0; i < 32; i++)
        {
            if (*(byte*)(addresses[i] + 100 * (i + 1) - 1) == i
                && shorts[i].TryGetTarget(out object o) && o == keep[i]
                && longs[i].Target == o && table.TryGetValue(o, out string s) && s == i.ToString()) right++;
            pinned[i].Free();
            longs[i].Free();
        }
        GC.KeepAlive(keep);
        return right;
    }

    /// <summary>Arrays on the large object heap, each filled with its own number.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long LargeObjects()
    {
        var arrays = new int[8][];
        for (int i = 0; i < arrays.Length; i++)
        {
            arrays[i] = new int[25_000 + i * 10_000];
            Array.Fill(arrays[i], i);
        }
        long right = 0;
        for (int i = 0; i < arrays.Length; i++)
        {
            if (arrays[i].AsSpan().IndexOfAnyExcept(i) < 0) right++;
        }
        Thread.Sleep(5);
        return right;
    }
}
