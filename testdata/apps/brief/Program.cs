// Spends its time in threads that each live for 1 to 5 milliseconds of CPU time. Two other
// threads start them, one after another. The program measures what each method used.
//
//   --stdin, --max-seconds: see App.cs
//
// The command "totals" on stdin is answered with what was spent since the start, in the
// form of the program "shares"; the methods run on threads that come and go.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Brief;

static class Program
{
    static readonly (string Name, Action<long> Run, double Often)[] methods =
        [("Brief.Program.Half", Half, .5), ("Brief.Program.Third", Third, .3), ("Brief.Program.Rest", Rest, .2)];

    static readonly Dictionary<string, (long Cpu, long Wall)> spent = new();
    static ulong taken;

    static void Main(string[] args)
    {
        App.Start(args);
        for (int i = 0; i < 2; i++)
        {
            int seed = 4711 + i;
            App.Background("starter", () => StartThreads(new Random(seed)));
        }
        Thread.Sleep(1500); // until hot methods have been recompiled
        App.Answer = command => command == "totals" ? Totals() : [];
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void StartThreads(Random random)
    {
        while (!App.Ending)
        {
            double at = random.NextDouble();
            int i = 0;
            while (i < methods.Length - 1 && (at -= methods[i].Often) >= 0) i++;
            long ns = random.NextInt64(1_000_000, 5_000_000);
            var t = new Thread(() => Live(i, ns)) { Name = "brief" };
            t.Start();
            t.Join();
            if (random.Next(3) == 0) Thread.Sleep(random.Next(3));
        }
    }

    static void Live(int i, long ns)
    {
        long cpu = Cpu(), wall = Stopwatch.GetTimestamp();
        methods[i].Run(ns);
        (cpu, wall) = (Cpu() - cpu, Stopwatch.GetTimestamp() - wall);
        lock (spent)
        {
            (long c, long w) = spent.GetValueOrDefault(methods[i].Name);
            spent[methods[i].Name] = (c + cpu, w + wall);
        }
    }

    static IEnumerable<string> Totals()
    {
        var lines = new List<string> { $"NOW {Stopwatch.GetTimestamp()}", $"THREAD main {Environment.ProcessId} 0 0" };
        lock (spent)
        {
            foreach ((string name, (long cpu, long wall)) in spent)
            {
                lines.Add($"SHARE pool {name} {cpu} {wall}");
            }
        }
        return lines;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Half(long ns) => Compute(ns);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Third(long ns) => Compute(ns);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Rest(long ns) => Compute(ns);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Compute(long ns)
    {
        ulong x = 88172645463325252;
        for (long end = Cpu() + ns; Cpu() < end;)
        {
            for (int i = 0; i < 5_000; i++)
            {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
        }
        Volatile.Write(ref taken, x);
    }

    /// <summary>The CPU time of this thread, in nanoseconds.</summary>
    static long Cpu()
    {
        const int threadCpuTime = 3; // CLOCK_THREAD_CPUTIME_ID
        clock_gettime(threadCpuTime, out Timespec t);
        return t.Seconds * 1_000_000_000 + t.Nanoseconds;
    }

    struct Timespec
    {
        public long Seconds, Nanoseconds;
    }

    [DllImport("libc")]
    static extern int clock_gettime(int clock, out Timespec t);
}
