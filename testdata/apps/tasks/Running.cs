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

    /// <summary>Starts the chains, and waits until all have gone down to their inner method.</summary>
    public static void Fill(IEnumerable<string[]> chains)
    {
        int n = 0;
        foreach (string[] levels in chains)
        {
            string name = $"chain-{n++}";
            Task root = Root(new Plan(levels, () => Leaf(name)));
            if (n % 4 == 0) App.Background("waits-" + name, () => root.Wait());
        }
        while (truths.Count < n) Thread.Sleep(1);
        Thread.Sleep(50); // for who waits
    }

    public static IEnumerable<string> Truths() => truths;

    static async Task Root(Plan p) { Levels.Mark("Running.Root"); await p.Next(); }

    static async Task Leaf(string name)
    {
        await Task.Yield();
        Thread.CurrentThread.Name = name;
        truths.Enqueue($"{name}\t{Levels.Path}");
        Thread.Sleep(Timeout.Infinite);
    }
}
