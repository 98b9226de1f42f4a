// A heap whose objects the program counts itself. It answers
//
//   truth        the classes of Shelves: "CLASS<tab>COUNT<tab>BYTES"; the bytes are those that were allocated
//   total        GC.GetTotalMemory(false), and how often the collector has run
//   collect      runs a full collection, and answers as total
//   holes        drops every second one of 40 large arrays of 100,000 bytes, and collects; large objects stay in place
//   churn N      N threads allocate at full speed from now on, and the answer is nothing
//   rest         they stop; the answer is how many bytes they have allocated
//   leak N       N more listeners
//   bulk N       N more megabytes of objects that stay, and a full collection
//   storm N      N threads collect without end from now on, in all ways, and allocate; the answer is nothing
//   grow N       one thread allocates N megabytes a second from now on, and keeps them; see Growth
//   calm         these threads stop; the answer is how many collections there were, and how many grains there are
//   spin         one thread measures from now on for how long it does not run
//   gap          the answer is the longest such time since the last question, in microseconds, and how often it was measured
using System;
using System.Collections.Generic;
using System.Runtime;
using System.Threading;
using Common;

namespace Shop;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        Shelves.Fill(App.Int("objects", 20_000));
        if (App.Flag("megabytes")) Shelves.Bulk(App.Int("megabytes", 1));
        GC.Collect();
        App.Answer = Answer;
        if (App.Flag("churn")) Churn.Start(App.Int("churn", 1));
        App.Line("READY");
        App.WaitForEnd();
        Churn.Stop();
        GC.KeepAlive(Shelves.All);
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static IEnumerable<string> Answer(string command)
    {
        string[] words = command.Split(' ');
        switch (words[0])
        {
            case "truth":
                return Shelves.Truth();
            case "collect":
                GC.Collect();
                return Total();
            case "holes":
                Shelves.Thin();
                GC.Collect();
                return Total();
            case "churn":
                Churn.Start(int.Parse(words[1]));
                return [];
            case "rest":
                return [$"{Churn.Stop()}"];
            case "bulk":
                Shelves.Bulk(int.Parse(words[1]));
                GC.Collect();
                GC.Collect();
                return Total();
            case "storm":
                Storm.Start(int.Parse(words[1]));
                return [];
            case "grow":
                Growth.Start(int.Parse(words[1]));
                return [];
            case "calm":
                Storm.Stop();
                return [$"{GC.CollectionCount(0)} {Growth.Stop()}"];
            case "spin":
                Spinner.Start();
                return [];
            case "gap":
                return [Spinner.Longest()];
            case "leak":
                for (int n = int.Parse(words[1]); n > 0; n--) Bus.Listen(new Listener());
                return [];
        }
        return Total();
    }

    static IEnumerable<string> Total() =>
        [$"{GC.GetTotalMemory(false)}", $"{GC.CollectionCount(0)} {GC.CollectionCount(2)}"];
}

/// <summary>Objects that stay, by class.</summary>
static class Shelves
{
    public static readonly Dictionary<string, object[]> All = new();
    static readonly Dictionary<string, (int Count, long Bytes)> truth = new();
    static readonly List<object> bulk = new();
    static object[] holes;

    public static void Fill(int n)
    {
        Keep("Shop.Customer", n, i => new Customer { Number = i });
        Keep("Shop.Customer<string>", n / 2, i => new Customer<string> { Key = "literal" });
        Keep("Shop.Customer<int>", n / 4, i => new Customer<int> { Key = i });
        Keep("Shop.Customer<Shop.Line>", n / 8, i => new Customer<Line>());
        Keep("Shop.Line[]", n / 20, i => new Line[i % 17]);
        Keep("Shop.Line[][]", 3, i => new Line[i][]);
        Keep("Shop.Line[,]", 5, i => new Line[i, 2]);
        Keep("Shop.Colour[]", 100, i => new Colour[i]);
        Keep("Shop.Node", n, i => new Node());
        Keep("Shop.Square", n / 3, i => new Square { Corners = 4, Side = i });
        Keep("Shop.Line", 50, i => (object)new Line { Count = i });
        Keep("decimal[]", 7, i => new decimal[20_000 + i]); // large
        Keep("System.Half[]", 9, i => GC.AllocateArray<Half>(500 + i, pinned: true));
        holes = new object[40];
        for (int i = 0; i < holes.Length; i++) holes[i] = new byte[100_000];
    }

    /// <summary>Fills the heap with objects of 100 bytes on average.</summary>
    public static void Bulk(int megabytes)
    {
        for (int m = 0; m < megabytes; m++)
        {
            var block = new Filler[10_000];
            for (int i = 0; i < block.Length; i++) block[i] = new Filler { Number = i, Name = new string('x', 15) };
            bulk.Add(block);
        }
    }

    static void Keep(string name, int n, Func<int, object> make)
    {
        var all = new object[n];
        All[name] = all;
        make(0);
        long before = GC.GetAllocatedBytesForCurrentThread();
        for (int i = 0; i < n; i++) all[i] = make(i);
        long bytes = GC.GetAllocatedBytesForCurrentThread() - before;
        truth[name] = (n, bytes);
    }

    public static void Thin()
    {
        for (int i = 0; i < holes.Length; i += 2) holes[i] = null;
    }

    public static IEnumerable<string> Truth()
    {
        foreach (var (name, t) in truth) yield return $"{name}\t{t.Count}\t{t.Bytes}";
    }
}

/// <summary>Threads that allocate at full speed. Most of it dies at once, some a little later.</summary>
static class Churn
{
    static volatile bool stopping;
    static readonly List<Thread> threads = new();
    static long bytes;

    public static void Start(int n)
    {
        stopping = false;
        for (int i = 0; i < n; i++) threads.Add(App.Background("churn", Run));
    }

    public static long Stop()
    {
        stopping = true;
        foreach (Thread t in threads) t.Join();
        threads.Clear();
        return Interlocked.Read(ref bytes);
    }

    /// <summary>Words that each would pass for the beginning of an object.</summary>
    static nint[] Decoys(int n)
    {
        var all = new nint[n];
        Array.Fill(all, typeof(Never).TypeHandle.Value);
        return all;
    }

    static void Run()
    {
        var ring = new object[5000];
        long before = GC.GetAllocatedBytesForCurrentThread();
        for (int i = 0; !stopping; i++)
        {
            ring[i % ring.Length] = (i % 6) switch
            {
                0 => new byte[i % 300],
                1 => new List<int> { i },
                2 => new string('y', i % 50),
                3 => new Dictionary<int, string> { [i] = null },
                4 => Decoys(i % 20),
                _ => (object)i,
            };
            if (i % 10_000 == 0) ring[0] = new byte[100_000];
        }
        Interlocked.Add(ref bytes, GC.GetAllocatedBytesForCurrentThread() - before);
    }
}
