// Managed methods that use CPU time, each until its thread's CPU clock says that it
// is enough.
using System;
using System.Runtime.CompilerServices;

namespace Shares;

static class Cpu
{
    /// <summary>Some microseconds.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Mix(ulong x)
    {
        for (int i = 0; i < 5_000; i++)
        {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        return x;
    }

    /// <summary>What all of them do in the end. Returns how often it has looked at the clock.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Compute(long ns)
    {
        ulong x = 88172645463325252;
        int looks = 1;
        for (long end = Native.shares_cpu() + ns; Native.shares_cpu() < end; looks++) x = Mix(x);
        Sink.Take(x);
        return looks;
    }

    /// <summary>Generic, on a shallow stack.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static T Alpha<T>(T what, long ns)
    {
        Compute(ns);
        return what;
    }

    const int Depth = 300;

    /// <summary>At the leaf of 300 frames.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Beta(long ns) => Sink.Take((ulong)Descend(Depth, ns, 1));

    // About 100 bytes a frame: more stack than the first 16 KB.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Descend(int depth, long ns, long a)
    {
        if (depth == 0) return Compute(ns);
        long b = a ^ depth, c = b * 3, d = c ^ ns, e = d + a;
        return Descend(depth - 1, ns, e) + b * c + d * e;
    }

    /// <summary>Above 20 KB of locals.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Gamma(long ns)
    {
        Span<byte> room = stackalloc byte[20 << 10];
        room[(int)(ns & 1023)] = 1;
        Compute(ns);
        Sink.Take(room[(int)(ns & 1023)]);
    }

    /// <summary>Less than all others: it belongs to the thread that waits.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Blink(long ns) => Compute(ns);

    // The cost of one system call, without load.
    static readonly double clockCost = Native.shares_cpu_cost();

    /// <summary>
    /// One half of the thread that waits during the other half. It reports how long its
    /// system calls took, each less than a microsecond. A profiler that finds more takes
    /// too many samples in system calls.
    /// </summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Half(long ns)
    {
        Meter m = Meter.Start();
        double looks = Compute(ns);
        m = Meter.Start() - m;
        double share = looks * clockCost / m.Cpu;
        Worker.Current.Spent("shares_cpu", new Meter((long)(share * m.Wall), (long)(share * m.Cpu)));
    }

    /// <summary>Exceptions, thrown through a few frames and caught.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Throw(long ns)
    {
        ulong caught = 0;
        for (long end = Native.shares_cpu() + ns; Native.shares_cpu() < end;)
        {
            try { Fail(5); }
            catch (InvalidOperationException) { caught++; }
        }
        Sink.Take(caught);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Fail(int depth)
    {
        if (depth == 0) throw new InvalidOperationException("thrown to be caught");
        try { return Fail(depth - 1) + 1; }
        finally { Sink.Take((ulong)depth); }
    }
}
