// Short-lived threads.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Ordeal;

static class Churn
{
    const int Each = 4, Steps = 100;

    public static Worker[] Workers =>
    [
        new("churn-named", 1, () => Managed("mayfly"), Each * Steps),
        new("churn-unnamed", 1, () => Managed(null), Each * Steps),
        new("churn-renamed", 1, Renamed, Each * Steps),
        new("churn-foreign", 1, Foreign, Each * Steps),
    ];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Managed(string name) => Run(sum => Step(sum), name);

    /// <summary>They get names only when they run.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Renamed() => Run(sum =>
    {
        Thread.CurrentThread.Name = "renamed";
        Step(sum);
    }, null);

    sealed class Sum { public int Value; }

    static long Run(Action<Sum> body, string name)
    {
        var sum = new Sum();
        var threads = new Thread[Each];
        for (int i = 0; i < Each; i++)
        {
            threads[i] = new Thread(() => body(sum), 256 << 10) { Name = name, IsBackground = true };
            threads[i].Start();
        }
        foreach (Thread t in threads) t.Join();
        return sum.Value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Step(Sum sum)
    {
        for (int i = 0; i < Steps; i++)
        {
            Interlocked.Increment(ref sum.Value);
            GC.KeepAlive(new byte[50]);
        }
    }

    [DllImport("libc")]
    static extern unsafe int pthread_create(
        nint* thread, void* attributes, delegate* unmanaged[Cdecl]<nint, nint> start, nint argument);

    [DllImport("libc")] static extern unsafe int pthread_join(nint thread, nint* result);

    /// <summary>Native threads: the runtime first sees them when they call managed code.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe long Foreign()
    {
        var sum = new Sum();
        GCHandle handle = GCHandle.Alloc(sum);
        nint* threads = stackalloc nint[Each];
        int started = 0;
        while (started < Each
            && pthread_create(&threads[started], null, &CalledBack, GCHandle.ToIntPtr(handle)) == 0) started++;
        for (int i = 0; i < started; i++) pthread_join(threads[i], null);
        handle.Free();
        return sum.Value;
    }

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static nint CalledBack(nint argument)
    {
        Step((Sum)GCHandle.FromIntPtr(argument).Target);
        return 0;
    }
}
