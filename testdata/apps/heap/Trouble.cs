using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Threading;
using Common;

namespace Shop;

/// <summary>Threads that collect all the time: every generation, with and without moving objects.</summary>
static class Storm
{
    static volatile bool stopping;
    static readonly List<Thread> threads = new();

    public static void Start(int n)
    {
        stopping = false;
        for (int i = 0; i < n; i++) threads.Add(App.Background("storm", Run));
    }

    public static void Stop()
    {
        stopping = true;
        foreach (Thread t in threads) t.Join();
        threads.Clear();
    }

    static void Run()
    {
        var kept = new object[3000];
        var random = new Random(7);
        for (int i = 0; !stopping; i++)
        {
            for (int j = 0; j < 300; j++) // leaves holes, so that there is something to move
                kept[random.Next(kept.Length)] = j % 3 == 0 ? new List<long>(j % 40) : new byte[random.Next(2000)];
            if (i % 16 == 15) GC.Collect(2, GCCollectionMode.Aggressive, true, true);
            else GC.Collect(i % 3, GCCollectionMode.Forced, true, i % 2 == 0);
        }
    }
}

/// <summary>Of each thousand of these there is one Seal.</summary>
sealed class Grain
{
    public Grain Next;
    public long A, B, C, D, E, F, G, H, I; // 96 bytes
}

struct Seal
{
    public long Number;
}

/// <summary>
/// A heap that grows. A thousand grains are made, then a seal, which lies in the part of the heap that is pinned: at
/// any one moment, there are as many thousands of grains as seals, and at most a thousand more.
/// </summary>
static class Growth
{
    static volatile bool stopping;
    static Thread thread;
    static Grain last;
    static readonly List<Seal[]> seals = new();
    static long grains;

    public static void Start(int megabytes)
    {
        stopping = false;
        thread = App.Background("growth", () => Run(megabytes));
    }

    public static long Stop()
    {
        stopping = true;
        thread?.Join();
        thread = null;
        return grains;
    }

    static void Run(int megabytes)
    {
        var clock = Stopwatch.StartNew();
        long begin = grains;
        while (!stopping)
        {
            for (int i = 0; i < 1000; i++) last = new Grain { Next = last };
            seals.Add(GC.AllocateArray<Seal>(1, pinned: true));
            grains += 1000;
            while (!stopping && (grains - begin) * 96 > clock.Elapsed.TotalSeconds * megabytes * 1e6) Thread.Sleep(1);
        }
    }
}

/// <summary>A thread that never waits. It allocates nothing, and calls nothing that does.</summary>
static class Spinner
{
    static long longest, rounds;

    public static void Start() => App.Background("spinner", Run);

    public static string Longest() =>
        $"{Interlocked.Exchange(ref longest, 0) * 1_000_000 / Stopwatch.Frequency} {Volatile.Read(ref rounds)}";

    static void Run()
    {
        long before = Stopwatch.GetTimestamp();
        for (;;)
        {
            long now = Stopwatch.GetTimestamp();
            if (now - before > Volatile.Read(ref longest)) Volatile.Write(ref longest, now - before);
            before = now;
            Volatile.Write(ref rounds, rounds + 1);
        }
    }
}
