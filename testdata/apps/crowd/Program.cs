// Many threads, most of which are blocked in one way or another, for snapshots of all
// threads at the same instant.
//
//   --threads N   blocked for good, default 1000: by fifths in a monitor, a semaphore, an
//                 event, a join and a sleep, at depths of 10 to 50 frames
//   --timed N     asleep for 50 ms at a time, default 0
//   --spin N      computing, default 0
//   --rings N     rings of four threads that hand a token around, default 0: see Ring.cs
//   --syncblocks N  objects with a sync block that nobody holds, default 0
//   --seconds N   ends after N seconds; --stdin, --max-seconds: see App.cs
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Crowd;

static class Program
{
    const int waysToBlock = 5, monitors = 20;

    static readonly object[] taken = new object[monitors];
    static readonly SemaphoreSlim none = new(0);
    static readonly ManualResetEvent never = new(false);
    static readonly Thread forever = new(() => Thread.Sleep(Timeout.Infinite)) { IsBackground = true };
    static int started;
    static object[] blocks;

    static void Main(string[] args)
    {
        App.Start(args);
        int blocked = App.Int("threads", 1000), timed = App.Int("timed", 0), spin = App.Int("spin", 0);
        forever.Start();
        blocks = new object[App.Int("syncblocks", 0)];
        for (int i = 0; i < blocks.Length; i++)
        {
            blocks[i] = new object();
            RuntimeHelpers.GetHashCode(blocks[i]); // the word in front of it has room for only one of the two
            lock (blocks[i]) { }
        }
        for (int i = 0; i < monitors; i++) Monitor.Enter(taken[i] = new object());
        for (int i = 0; i < blocked; i++)
        {
            int way = i;
            Start($"blocked-{i}", 10 + i * 7 % 41, () => Block(way));
        }
        for (int i = 0; i < timed; i++) Start($"timed-{i}", 20, Nap);
        for (int i = 0; i < spin; i++) Start($"spin-{i}", 20, Spin);
        while (Volatile.Read(ref started) < blocked + timed + spin) Thread.Sleep(1);
        for (int i = 0; i < App.Int("rings", 0); i++) Ring.Start(i);
        Kernel.AwaitBlocked("blocked-");
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Start(string name, int depth, Action act) =>
        App.Background(name, () => Descend(depth, act), stackBytes: 1 << 20);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Descend(int depth, Action act)
    {
        if (depth > 1) return Descend(depth - 1, act) + 1;
        Interlocked.Increment(ref started);
        act();
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Block(int i)
    {
        switch (i % waysToBlock)
        {
            case 0: lock (taken[i % monitors]) break;
            case 1: none.Wait(); break;
            case 2: never.WaitOne(); break;
            case 3: forever.Join(); break;
            case 4: Thread.Sleep(Timeout.Infinite); break;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Nap()
    {
        while (!App.Ending) Thread.Sleep(50);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Spin()
    {
        for (ulong x = 1; !App.Ending;) x = Mix(x);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Mix(ulong x)
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
