// What the runtime tells a profiler of: exceptions, allocations, waits, and waits for locks.
using System;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Tasks;

static class Raising
{
    static readonly object gate = new(), pulse = new();
    [ThreadStatic] static byte[] kept;

    /// <summary>Raises all of these again and again, until the program ends.</summary>
    public static void Events(string name)
    {
        while (!App.Ending)
        {
            try { Throw(name); } catch (InvalidOperationException) { }
            kept = new byte[50_000];
            lock (gate) Thread.Sleep(1);
            lock (pulse) Monitor.Wait(pulse, 2);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throw(string name) => throw new InvalidOperationException(name);

    /// <summary>Has the inner methods of two chains of seven allocate for so long. How many MB a second that was.</summary>
    public static long Throughput(int milliseconds)
    {
        string[] levels = ["task", "value", "result", "configured", "lambda", "local"];
        long sum = 0, end = Environment.TickCount64 + milliseconds;
        Task.WaitAll([.. Enumerable.Range(0, 2).Select(_ => Running.Root(new Plan(levels, Allocate)))]);
        return sum / 1000 / milliseconds;

        async Task Allocate()
        {
            await Task.Yield();
            long bytes = 0;
            while (Environment.TickCount64 < end) bytes += Small();
            Interlocked.Add(ref sum, bytes);
        }
    }

    sealed class Cell { public Cell Next; public long A, B, C, D; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Small()
    {
        const int n = 10_000;
        Cell list = null;
        for (int i = 0; i < n; i++) list = new Cell { Next = i % 100 == 0 ? null : list };
        GC.KeepAlive(list);
        return 56 * n;
    }
}
