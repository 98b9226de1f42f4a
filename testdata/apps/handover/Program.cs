// Pairs of threads that hand a baton to and fro, with a little work in between:
// tens of thousands of context switches a second.
//
//   --pairs N   default 2
//   --work N    rounds of a random number generator before a baton is passed on, default 10000
//   --stdin, --max-seconds: see App.cs
//
// The command "units" on stdin is answered with
//
//   UNITS <times that a baton was handed over since the start> <CLOCK_MONOTONIC ns>
//
// At the end it checks that both threads of a pair have had the baton equally often.
using System.Diagnostics;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Handover;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        Baton[] batons = Enumerable.Range(0, App.Int("pairs", 2)).Select(i => new Baton(i)).ToArray();
        App.Answer = _ => [$"UNITS {batons.Sum(b => b.Count)} {Stopwatch.GetTimestamp()}"];
        Thread.Sleep(1000); // until hot methods have been recompiled
        App.Line("READY");
        App.WaitForEnd();
        bool right = batons.All(b => b.End());
        App.Line(right ? "RESULT OK" : "RESULT BAD a baton was not handed to and fro");
        App.Exit(right ? 0 : 1);
    }
}

/// <summary>A baton and the two threads that it goes between.</summary>
sealed class Baton
{
    static readonly int work = App.Int("work", 10000);
    readonly object gate = new();
    readonly Thread[] threads;
    readonly long[] held = new long[2];
    long count;
    ulong seed = 1;
    bool over;

    public Baton(int number) =>
        threads = Enumerable.Range(0, 2).Select(me => App.Background($"hand-{number}-{me}", () => Run(me))).ToArray();

    public long Count => Volatile.Read(ref count);

    void Run(int me)
    {
        lock (gate)
        {
            while (!over)
            {
                if (count % 2 == me)
                {
                    seed = Mix(seed);
                    held[me]++;
                    Volatile.Write(ref count, count + 1);
                    Monitor.Pulse(gate);
                }
                else
                {
                    Monitor.Wait(gate);
                }
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Mix(ulong x)
    {
        for (int i = 0; i < work; i++)
        {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        return x;
    }

    /// <summary>Ends it, and reports whether all was well.</summary>
    public bool End()
    {
        lock (gate)
        {
            over = true;
            Monitor.PulseAll(gate);
        }
        foreach (Thread t in threads) t.Join();
        return held[0] + held[1] == count && held[0] - held[1] is 0 or 1;
    }
}
