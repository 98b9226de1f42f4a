// Chains whose inner method blocks its thread.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Tasks;

static class Running
{
    static readonly ConcurrentQueue<string> truths = new();

    /// <summary>Starts the chains, and waits until all have gone down to their inner method, which does something for
    /// ever.</summary>
    public static void Fill(IEnumerable<string[]> chains, Action<string> stay)
    {
        int n = 0;
        foreach (string[] levels in chains)
        {
            string name = $"chain-{n++}";
            bool waited = n % 4 == 0;
            Task root = Root(new Plan(levels, () => Leaf(name, waited ? "\t>waits-" + name : "", stay)));
            if (waited) App.Background("waits-" + name, () => root.Wait());
        }
        while (truths.Count < n) Thread.Sleep(1);
        Kernel.AwaitBlocked("waits-");
    }

    /// <summary>Starts tasks whose delegates block their threads, and methods and threads that wait for them.</summary>
    public static void Delegates()
    {
        Task.Run(() => Ran("ran"));
        Task.Run(() => RanAsync("ran-async"));
        Task.Run(() => RanLong("ran-long"));
        Task.Run(() => Ran("ran-awaited-later").ContinueWith(_ => { }));
        Task waited = Task.Run(() => Stay("ran-waited", "\t>waits-ran"));
        App.Background("waits-ran", () => waited.Wait());
        while (truths.Count < 5) Thread.Sleep(1);
        Kernel.AwaitBlocked("waits-", "ran", ".NET TP Worker");

        static async Task Ran(string name)
        {
            Levels.Mark("Running.Delegates{local Ran}"); await Task.Run(() => Stay(name));
        }

        static async Task RanAsync(string name)
        {
            Levels.Mark("Running.Delegates{local RanAsync}"); await Task.Run(async () => { Stay(name); await Task.Yield(); });
        }

        static async Task RanLong(string name)
        {
            Levels.Mark("Running.Delegates{local RanLong}", below: 1);
            await Task.Factory.StartNew(() => Stay(name), TaskCreationOptions.LongRunning);
        }
    }

    static void Stay(string name, string waiter = "")
    {
        Thread.CurrentThread.Name = name;
        truths.Enqueue($"{name}\t{Levels.Path}{waiter}");
        Thread.Sleep(Timeout.Infinite);
    }

    /// <summary>Has the objects be moved all the time, with so many milliseconds between two collections.</summary>
    public static void Collect(int pause) => App.Background("collects", () =>
    {
        var kept = new object[1000];
        for (int i = 0; !App.Ending; i++)
        {
            kept[i * 7 % kept.Length] = new byte[100 + i % 1000];
            if (i % 500 != 0) continue;
            Thread.Sleep(pause);
            GC.Collect(i / 500 % 3, GCCollectionMode.Forced, blocking: true, compacting: true);
        }
    });

    public static IEnumerable<string> Truths() => truths;

    public static async Task Root(Plan p) { Levels.Mark("Running.Root"); await p.Next(); }

    static async Task Leaf(string name, string waiter, Action<string> stay)
    {
        await Task.Yield();
        Thread.CurrentThread.Name = name;
        truths.Enqueue($"{name}\t{Levels.Path}{waiter}");
        stay(name);
    }
}
