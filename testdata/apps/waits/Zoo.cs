using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Waits;

/// <summary>What a thread waits for, in the words of clrsnap's JSON. What is null is not compared.</summary>
sealed class Wait
{
    public string Thread, Kind, Type, Owner, Target, Field, Detail;
    public object Object;
    public Task[] Tasks;
    public int? Recursion, Waiters, Timeout;
}

/// <summary>What a thread holds.</summary>
sealed class Hold
{
    public string Thread, Kind, Type, Field, Detail;
    public object Object;
    public int? Recursion, Waiters;
}

/// <summary>The threads that wait, and what they wait for.</summary>
static class Zoo
{
    static readonly List<Wait> waits = new();
    static readonly List<Hold> holds = new();
    static readonly List<Thread> threads = new();
    static int settled;

    /// <summary>What is to be done before the program ends.</summary>
    public static Action AtEnd = () => { };

    /// <summary>Starts a thread that waits.</summary>
    public static Thread Waits(Wait wait, Action body)
    {
        waits.Add(wait);
        return Start(wait.Thread, body);
    }

    /// <summary>Starts a thread that takes a lock, and returns once it calls what it is given.</summary>
    public static Thread Holds(Hold hold, Action<Action> take)
    {
        holds.Add(hold);
        var taken = new ManualResetEventSlim();
        Thread thread = Start(hold.Thread, () => take(() => { taken.Set(); Rest(); }));
        taken.Wait();
        return thread;
    }

    public static void Also(Hold hold) => holds.Add(hold);

    public static void Also(Wait wait) => waits.Add(wait);

    public static Thread Start(string name, Action body)
    {
        var thread = App.Background(name, () => body());
        threads.Add(thread);
        return thread;
    }

    /// <summary>Where threads are that hold something, in a call that is not inlined.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Rest() => Thread.Sleep(Timeout.Infinite);

    /// <summary>Waits until all threads wait.</summary>
    public static void Settle()
    {
        var limit = Stopwatch.StartNew();
        while (threads.Any(t => (t.ThreadState & System.Threading.ThreadState.WaitSleepJoin) == 0 && t.Name[0] != '~'
            && !InKernel(t)))
        {
            if (limit.ElapsedMilliseconds > 60_000)
                App.Fail("not waiting: " + string.Join(" ", threads.Where(
                    t => (t.ThreadState & System.Threading.ThreadState.WaitSleepJoin) == 0).Select(t => t.Name)));
            Thread.Sleep(10);
        }
        Thread.Sleep(500);
        GC.Collect();
        Interlocked.Exchange(ref settled, 1);
    }

    /// <summary>Whether a thread is blocked in the kernel: who waits for a named Mutex has no ThreadState of that in
    /// .NET 11.</summary>
    static bool InKernel(Thread t) => t.Name.StartsWith("named") && Kernel.Blocked(t.Name);

    /// <summary>Allocates objects between those of others, and collects.</summary>
    public static void Collect()
    {
        for (int i = 0; i < 2; i++)
            App.Background("collects", () =>
            {
                var kept = new object[1000];
                for (int n = 0; ; n++)
                {
                    kept[n % kept.Length] = new byte[n % 300];
                    if (n % 20_000 == 0) GC.Collect(n / 20_000 % 3, GCCollectionMode.Forced, true, true);
                }
            });
    }

    /// <summary>One line for each wait and each hold: name=value, separated by tabs.</summary>
    public static IEnumerable<string> Truths()
    {
        foreach (Wait w in waits)
            yield return Line("wait", w.Thread, w.Kind, w.Type, w.Object, w.Recursion, w.Waiters,
                ("owner", w.Owner), ("timeout", w.Timeout?.ToString()), ("target", w.Target), ("field", w.Field),
                ("detail", w.Detail), ("tasks", w.Tasks == null ? null : string.Join(' ', w.Tasks.Select(Address))));
        foreach (Hold h in holds)
            yield return Line("hold", h.Thread, h.Kind, h.Type, h.Object, h.Recursion, h.Waiters,
                ("field", h.Field), ("detail", h.Detail));
    }

    static unsafe string Address(object o) => "0x" + (*(ulong*)Unsafe.AsPointer(ref o)).ToString("x");

    static string Line(string what, string thread, string kind, string type, object o, int? recursion,
        int? waiters, params (string, string)[] more)
    {
        var text = new StringBuilder(what);
        void Add(string name, string value) { if (value != null) text.Append('\t').Append(name).Append('=').Append(value); }
        Add("thread", thread);
        Add("kind", kind);
        Add("type", type);
        if (o != null) Add("object", Address(o));
        Add("recursion", recursion?.ToString());
        Add("waiters", waiters?.ToString());
        foreach ((string name, string value) in more) Add(name, value);
        return text.ToString();
    }
}
