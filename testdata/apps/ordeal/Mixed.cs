// Contended locks, and exceptions that unwind many frames.
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Ordeal;

static class Mixed
{
    const int Turns = 100, Thrown = 20;

    public static Worker[] Workers =>
    [
        new("locks", 3, Locks, 2 * Turns),
        new("throw", 2, Throw, Thrown * (Thrown - 1) / 2),
        new("async", 1, Async, Thrown * (Thrown - 1) / 2),
    ];

    static readonly object monitor = new();
    static readonly Lock @lock = new();
    static int inMonitor, inLock;

    /// <summary>Counts how often it was alone in a lock.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Locks()
    {
        long alone = 0;
        for (int i = 0; i < Turns; i++)
        {
            lock (monitor) alone += Alone(ref inMonitor, i);
            lock (@lock) alone += Alone(ref inLock, i);
        }
        return alone;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Alone(ref int inside, int turn)
    {
        int before = inside++;
        if (turn % 25 == 0) Thread.Sleep(1);
        return before == 0 && --inside == 0 ? 1 : 0;
    }

    sealed class Carried(int value) : Exception("thrown to be caught") { public readonly int Value = value; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Throw()
    {
        long sum = 0;
        for (int i = 0; i < Thrown; i++)
        {
            try { Descend(i, i); }
            catch (Carried e) when (e.Value == i) { sum += e.Value; }
        }
        return sum;
    }

    // Thrown again halfway up, through finally blocks that allocate.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Descend(int value, int depth)
    {
        if (depth == 0) throw new Carried(value);
        try { return Descend(value, depth - 1) + 1; }
        catch (Carried) when (depth == value / 2) { throw; }
        finally { GC.KeepAlive(new byte[100]); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Async()
    {
        long sum = 0;
        for (int i = 0; i < Thrown; i++)
        {
            try { Awaited(i, 3).GetAwaiter().GetResult(); }
            catch (Carried e) { sum += e.Value; }
        }
        return sum;

        static async Task<int> Awaited(int value, int depth)
        {
            await Task.Yield();
            return depth == 0 ? Descend(value, value) : await Awaited(value, depth - 1);
        }
    }
}
