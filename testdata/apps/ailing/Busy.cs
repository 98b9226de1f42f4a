using System;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Shop;

/// <summary>The program works, but slowly.</summary>
static class Busy
{
    static readonly object journal = new();
    static volatile bool found;
    static volatile byte[] last;

    /// <summary>Work items block until another one has run, and there are more of them than workers.</summary>
    public static void Pool()
    {
        App.Background("requests", () =>
        {
            while (true)
            {
                // They would take more than a hundred workers.
                for (int i = 0; i < 40; i++) ThreadPool.QueueUserWorkItem(_ => Handle());
                Thread.Sleep(100);
            }
        });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Handle() => Load().GetAwaiter().GetResult();

    static async Task<int> Load()
    {
        await Task.Delay(300);
        await Task.Yield();
        return 1;
    }

    /// <summary>Workers wait for a task that does not end, and nothing else is to be done.</summary>
    public static void SyncOver()
    {
        var price = new TaskCompletionSource<int>();
        for (int i = Math.Max(8, 2 * Environment.ProcessorCount); i > 0; i--)
        {
            ThreadPool.QueueUserWorkItem(_ => Ask(price.Task));
        }
        while (ThreadPool.PendingWorkItemCount > 0) Thread.Sleep(100);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ask(Task<int> price) => price.GetAwaiter().GetResult();

    /// <summary>Two workers try again and again, and sleep in between.</summary>
    public static void Retries()
    {
        for (int i = 0; i < 2; i++) ThreadPool.QueueUserWorkItem(_ => Retry());
        while (ThreadPool.PendingWorkItemCount > 0) Thread.Sleep(100);
    }

    /// <summary>Three threads try again and again, and fail each time.</summary>
    public static void Failing()
    {
        for (int i = 0; i < 3; i++) App.Background($"saves-{i}", () => { while (true) Save(); });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Save()
    {
        while (last?.Length != 1)
        {
            try
            {
                Lock();
                return;
            }
            catch (InvalidOperationException)
            {
                Thread.Sleep(50);
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Lock() => throw new InvalidOperationException("the file is locked");

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Retry()
    {
        while (last?.Length != 1) Thread.Sleep(150);
    }

    /// <summary>Eight threads write one after another, because each sleeps while it holds the lock.</summary>
    public static void Convoy()
    {
        for (int i = 0; i < 8; i++)
        {
            App.Background($"writer-{i}", () => { while (true) Write(); });
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Write()
    {
        lock (journal) Flush();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Flush() => Thread.Sleep(20);

    static readonly object vault = new();

    /// <summary>Three of many threads wait for a lock that is never given back. The others get on.</summary>
    public static void Hoard()
    {
        using ManualResetEventSlim has = new();
        App.Background("hoarder", () => Keep(has));
        has.Wait();
        for (int i = 0; i < 3; i++) App.Background("visitor-" + i, Visit);
        for (int i = 0; i < 20; i++) App.Background("clerk-" + i, () => { while (true) Thread.Sleep(5); });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Keep(ManualResetEventSlim has) { lock (vault) { has.Set(); Thread.Sleep(Timeout.Infinite); } }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Visit() { lock (vault) GC.KeepAlive(vault); }

    /// <summary>A thread looks for what never comes.</summary>
    public static void Loop() => App.Background("matcher", Match);

    /// <summary>So many threads do that they share the CPUs.</summary>
    public static void Crowd()
    {
        for (int i = 0; i < App.Int("crowd", 24); i++) App.Background("matcher-" + i, Match);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Match()
    {
        int tried = 0;
        while (!found) tried = unchecked(tried * 31 + 7);
        GC.KeepAlive(tried);
    }

    /// <summary>A regular expression whose time doubles with each character.</summary>
    public static void CompiledRegex() => App.Background("parser", () => IsTagToo(new string('a', 60) + "!"));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool IsTagToo(string text) => new System.Text.RegularExpressions.Regex("^(a+)+$",
        System.Text.RegularExpressions.RegexOptions.Compiled).IsMatch(text);

    public static void Regex() => App.Background("parser", () => IsTag(new string('a', 60) + "!"));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool IsTag(string text) => System.Text.RegularExpressions.Regex.IsMatch(text, "^(a+)+$");

    static readonly Lazy<int> table = new(() => Parse("the table is not there yet"));

    /// <summary>A Lazy that has failed once fails at each use.</summary>
    public static void Failed() => App.Background("clicks", () =>
    {
        for (; ; Thread.Sleep(10)) Region();
    });

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Region()
    {
        try
        {
            return table.Value;
        }
        catch (FormatException)
        {
            return 0;
        }
    }

    /// <summary>Numbers are parsed by trial and error.</summary>
    public static void Throws() => App.Background("parser", () =>
    {
        while (true)
        {
            for (int i = 0; i < 10; i++) Number("12a");
            Thread.Sleep(2);
        }
    });

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Number(string text)
    {
        try
        {
            return Parse(text);
        }
        catch (FormatException)
        {
            return 0;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Parse(string text)
    {
        foreach (char c in text)
        {
            if (!char.IsDigit(c)) throw new FormatException("not a number");
        }
        return text.Length;
    }

    /// <summary>Each request has a large buffer of its own, and survives for a while.</summary>
    public static void Garbage()
    {
        for (int t = 0; t < 2; t++)
        {
            App.Background($"uploads-{t}", () =>
            {
                var some = new byte[64][];
                for (int i = 0; ; i++) some[i % some.Length] = last = Buffer();
            });
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static byte[] Buffer() => new byte[200_000];
}
