// Threads that compute at the bottom of a deep stack, for benchmarks.
//
//   --threads N   default 4
//   --depth D     frames above the hot one, default 60
//   --seconds N   ends after N seconds; --stdin, --max-seconds as everywhere
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Spin;

static class Program
{
    static int started;

    static void Main(string[] args)
    {
        App.Start(args);
        int threads = App.Int("threads", 4), depth = App.Int("depth", 60);
        for (int i = 0; i < threads; i++)
        {
            int seed = i + 1;
            App.Background($"spin-{i}", () => Descend(depth, (ulong)seed), stackBytes: 1 << 20);
        }
        while (Volatile.Read(ref started) < threads) Thread.Sleep(1);
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.Line("RESULT OK");
        App.Exit(0);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Descend(int depth, ulong seed)
    {
        if (depth > 1) return Descend(depth - 1, seed) + 1;
        Interlocked.Increment(ref started);
        ulong x = seed;
        while (!App.Ending) x = Mix(x);
        return x;
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
