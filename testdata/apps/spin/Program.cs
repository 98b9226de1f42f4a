// Threads that compute at the leaf of a deep stack, for benchmarks.
//
//   --threads N   default 4
//   --depth D     frames above the hot one, default 60
//   --idle N      threads that only wake up every one to three seconds, default 0
//   --seconds N   ends after N seconds; --stdin, --max-seconds: see App.cs
//
// The command "units" on stdin is answered with
//
//   UNITS <units of work since the start> <CLOCK_MONOTONIC ns>
//
// After the command "exec" the process executes a shell that computes for ever.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Spin;

static class Program
{
    // One cache line each: no false sharing.
    const int Apart = 16;
    static long[] units;
    static int started;

    static void Main(string[] args)
    {
        App.Start(args);
        int threads = App.Int("threads", 4), depth = App.Int("depth", 60);
        units = new long[(threads + 1) * Apart];
        for (int i = 0; i < threads; i++)
        {
            int me = i + 1;
            App.Background($"spin-{i}", () => Descend(depth, me), stackBytes: 1 << 20);
        }
        for (int i = App.Int("idle", 0); i > 0; i--)
        {
            int pause = 1000 + i * 37 % 2000;
            App.Background($"idle-{i}", () => Wait(pause), stackBytes: 256 << 10);
        }
        while (Volatile.Read(ref started) < threads) Thread.Sleep(1);
        App.Answer = asked => asked == "exec" ? Execute() : [$"UNITS {Units()} {Stopwatch.GetTimestamp()}"];
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.Line("RESULT OK");
        App.Exit(0);
    }

    /// <summary>Soon it is a shell that computes.</summary>
    static string[] Execute()
    {
        App.Background("execute", () =>
        {
            Thread.Sleep(100);
            execv("/bin/sh", ["sh", "-c", "while :; do :; done", null]);
        });
        return [];
    }

    [DllImport("libc")] static extern int execv(string path, string[] arguments);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Descend(int depth, int me)
    {
        if (depth > 1) return Descend(depth - 1, me) + 1;
        Interlocked.Increment(ref started);
        ulong x = (ulong)me;
        while (!App.Ending)
        {
            x = Mix(x);
            Volatile.Write(ref units[me * Apart], units[me * Apart] + 1);
        }
        return x;
    }

    static void Wait(int pause)
    {
        while (!App.Ending) Thread.Sleep(pause);
    }

    static long Units()
    {
        long sum = 0;
        for (int i = Apart; i < units.Length; i += Apart) sum += Volatile.Read(ref units[i]);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Mix(ulong x)
    {
        for (int i = 0; i < 10_000; i++)
        {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        return x;
    }
}
