// What the runtime tells a profiler of: exceptions, allocations, waits, and waits for locks.
using System;
using System.Runtime.CompilerServices;
using System.Threading;
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
}
