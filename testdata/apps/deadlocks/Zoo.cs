using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using Common;

namespace Deadlocks;

sealed class Order { public int Sum; }
sealed class Stock { public int Left; }
sealed class Invoice { public int Number; }

/// <summary>What becomes of a set of threads.</summary>
enum Truth
{
    Deadlock,  // for ever
    Suspected, // one of them gives up by itself
    Likely,    // for ever, by what the code says
    None,
}

/// <summary>The sets of threads. All threads of a set have its name, and a part of their own.</summary>
static class Zoo
{
    sealed class Set
    {
        public Truth Truth;
        public string[] Members, Victims;
        public string Note;
    }

    static readonly List<Set> sets = new();
    static readonly List<Thread> threads = new();

    /// <summary>Says what becomes of a set: its members and its victims are parts of threads' names.</summary>
    public static void Says(string set, Truth truth, string[] members, string[] victims = null, string note = null) =>
        sets.Add(new()
        {
            Truth = truth, Note = note, Members = members.Select(m => $"{set}-{m}").ToArray(),
            Victims = (victims ?? []).Select(v => $"{set}-{v}").ToArray(),
        });

    /// <summary>Starts a thread of a set.</summary>
    public static Thread Start(string set, string name, Action body)
    {
        Thread thread = App.Background($"{set}-{name}", () => body());
        lock (threads) threads.Add(thread);
        return thread;
    }

    /// <summary>Names a thread of the pool, which will never run anything else.</summary>
    public static void Name(string set, string name)
    {
        Thread.CurrentThread.Name = $"{set}-{name}";
        lock (threads) threads.Add(Thread.CurrentThread);
    }

    /// <summary>Returns an action that waits until so many threads have called it.</summary>
    public static Action Meeting(int threads)
    {
        var all = new CountdownEvent(threads);
        return () =>
        {
            Interlocked.Increment(ref underway);
            all.Signal();
            all.Wait();
            Interlocked.Decrement(ref underway);
        };
    }

    sealed class Queue
    {
        public readonly ManualResetEventSlim Begins = new();
        public int Threads;
    }

    static readonly SortedDictionary<int, Queue> turns = new();
    static int underway; // threads that look as if they waited, and are about to go on

    /// <summary>Lets a thread go on when all those that have no turn wait for good, and those with an earlier turn.</summary>
    public static void Turn(int number)
    {
        Queue turn;
        lock (turns)
        {
            if (!turns.TryGetValue(number, out turn)) turns[number] = turn = new();
            turn.Threads++;
        }
        turn.Begins.Wait();
        Interlocked.Decrement(ref underway);
    }

    static bool NextTurn()
    {
        lock (turns)
        {
            if (turns.Count == 0) return false;
            var (number, turn) = turns.First();
            turns.Remove(number);
            Interlocked.Add(ref underway, turn.Threads);
            turn.Begins.Set();
            return true;
        }
    }

    /// <summary>Waits until all threads wait for good, each after its turn.</summary>
    public static void Settle()
    {
        Thread.Sleep(800); // for timers that async methods wait for
        var limit = Stopwatch.StartNew();
        do
        {
            for (int n = 0; n < 5; n++)
            {
                Thread[] list;
                lock (threads) list = threads.ToArray();
                if (!list.All(Waits) || Volatile.Read(ref underway) > 0) n = -1;
                if (limit.ElapsedMilliseconds > 60_000)
                    App.Fail("not waiting: " + string.Join(" ", list.Where(t => !Waits(t)).Select(t => t.Name)));
                Thread.Sleep(20);
            }
        } while (NextTurn());
        GC.Collect();
        Thread.Sleep(200);
    }

    /// <summary>Whether a thread waits, or has ended.</summary>
    public static bool Waits(Thread t) =>
        !t.IsAlive || (t.ThreadState & System.Threading.ThreadState.WaitSleepJoin) != 0 || InKernel(t);

    /// <summary>
    /// Whether a thread is blocked in the kernel: who waits for a static constructor does not say that it waits, and in
    /// .NET 11 neither who waits for a named Mutex.
    /// </summary>
    static bool InKernel(Thread t) => (t.Name.StartsWith("named") || t.Name.StartsWith("static-") ||
        t.Name.StartsWith("settings-")) && Kernel.Blocked(t.Name);

    /// <summary>Allocates objects between those of others, and collects.</summary>
    public static void Collect() => App.Background("collects", () =>
    {
        var kept = new object[1000];
        for (int n = 0; ; n++)
        {
            kept[n % kept.Length] = new byte[n % 300];
            if (n % 20_000 == 0) GC.Collect(n / 20_000 % 3, GCCollectionMode.Forced, true, true);
        }
    });

    /// <summary>One line for each set: what it is, and lists of its threads, separated by tabs.</summary>
    public static IEnumerable<string> Truths() => sets.Select(s => string.Join('\t', s.Truth.ToString().ToLowerInvariant(),
        string.Join(' ', s.Members), string.Join(' ', s.Victims), s.Note ?? ""));
}
