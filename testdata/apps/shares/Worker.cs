// What is measured: how much CPU time and wall-clock time each method of each
// worker had.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using Common;

namespace Shares;

/// <summary>Both clocks at some time, in nanoseconds. The second is the thread's own.</summary>
readonly record struct Meter(long Wall, long Cpu)
{
    // Stopwatch counts nanoseconds of CLOCK_MONOTONIC.
    public static long Now => Stopwatch.GetTimestamp();

    public static Meter Start() => new(Now, Native.shares_cpu());

    public static Meter operator -(Meter a, Meter b) => new(a.Wall - b.Wall, a.Cpu - b.Cpu);

    public static Meter operator +(Meter a, Meter b) => new(a.Wall + b.Wall, a.Cpu + b.Cpu);
}

/// <summary>
/// A method, by the name that its frames have, that a worker calls every now and
/// then, for a while: from Least to Most nanoseconds.
/// </summary>
sealed record Slice(string Method, Action<long> Run, double Often, long Least = 5_000_000, long Most = 35_000_000);

/// <summary>
/// A thread that takes its slices in random order, each of random length: nothing in
/// it has a period that could beat with a profiler's. How often each slice comes is
/// only about right; what counts is what is measured.
/// </summary>
sealed class Worker(string name, Slice[] slices, int stackBytes = 0)
{
    static readonly List<Worker> all = new();
    [ThreadStatic] static Worker current;

    readonly Dictionary<string, Meter> spent = new();
    Meter began, since;
    string running; // since then; null: between two slices
    int tid;

    public static Worker Current => current;

    public void Start()
    {
        lock (all) all.Add(this);
        App.Background(name, Work, stackBytes);
    }

    void Work()
    {
        current = this;
        var random = new Random(name.Aggregate(17, (hash, c) => hash * 31 + c));
        double sum = slices.Sum(s => s.Often);
        lock (spent) (tid, began) = (Native.gettid(), Meter.Start());
        while (!App.Ending)
        {
            Slice s = Pick(random.NextDouble() * sum);
            lock (spent) (running, since) = (s.Method, Meter.Start());
            s.Run(random.NextInt64(s.Least, s.Most));
            lock (spent)
            {
                SpentSince(s.Method, since);
                running = null;
            }
        }
    }

    Slice Pick(double at)
    {
        foreach (Slice s in slices)
        {
            if ((at -= s.Often) < 0) return s;
        }
        return slices[^1];
    }

    /// <summary>Adds what has passed since m to what a method had, callees included.</summary>
    public void SpentSince(string method, Meter m) => Spent(method, Meter.Start() - m);

    public void Spent(string method, Meter m)
    {
        lock (spent) spent[method] = spent.GetValueOrDefault(method) + m;
    }

    /// <summary>All of it so far: of a thread THREAD, of its methods SHARE lines.</summary>
    public static IEnumerable<string> Report()
    {
        var lines = new List<string>();
        lock (all)
        {
            foreach (Worker w in all) w.Report(lines);
        }
        return lines;
    }

    void Report(List<string> lines)
    {
        lock (spent)
        {
            var now = new Meter(Meter.Now, Native.shares_cpu_of(tid));
            Meter m = now - began;
            lines.Add($"THREAD {name} {tid} {m.Cpu} {m.Wall}");
            foreach ((string method, Meter of) in spent)
            {
                Meter all = method == running ? of + (now - since) : of;
                lines.Add($"SHARE {name} {method} {all.Cpu} {all.Wall}");
            }
        }
    }
}

/// <summary>Keeps results, so that no computation is left out.</summary>
static class Sink
{
    static ulong taken;

    public static void Take(ulong x) => Volatile.Write(ref taken, x);
}
