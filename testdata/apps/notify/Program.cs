// Does on request what the in-process agent reports, one thing at a time.
//
// Commands on stdin: ids, tid, allocate, large, throw, rethrow,
// contend-monitor, contend-lock, thread, collect, crowd N. All run on the thread that reads stdin.
// The answer has what a reader cannot know: "ids" lists the addresses of the methods
// and types below, which are their FunctionIDs and ClassIDs.
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Notify;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        App.Answer = Answer;
        if (App.Flag("throw-at-start")) Exceptions.Throw();
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static IEnumerable<string> Answer(string command)
    {
        string[] words = command.Split(' ');
        switch (words[0])
        {
            case "ids": return Ids();
            case "tid": return [$"{gettid()}"];
            case "allocate": return [$"{Allocations.Small()}"];
            case "large": return [$"{Allocations.Large()}"];
            case "throw": Exceptions.Throw(); return [];
            case "rethrow": Exceptions.RethrowInFinally(); return [];
            case "contend-monitor": return [$"{Contention.OfMonitor()}"];
            case "contend-lock": return [$"{Contention.OfLock()}"];
            case "thread": return [$"{Threads.One()}"];
            case "collect": Collections.Induced(); return [];
            case "crowd": Threads.Crowd(int.Parse(words[1])); return [];
        }
        return [$"unknown command {command}"];
    }

    /// <summary>"Type.Method address" and "Type address".</summary>
    static IEnumerable<string> Ids()
    {
        foreach (Type type in typeof(Program).Assembly.GetTypes())
        {
            if (type.Namespace != "Notify") continue;
            yield return $"{type.Name} {type.TypeHandle.Value:x}";
            foreach (MethodInfo m in type.GetMethods((BindingFlags)~0 & ~BindingFlags.FlattenHierarchy))
            {
                if (m.DeclaringType == type) yield return $"{type.Name}.{m.Name} {m.MethodHandle.Value:x}";
            }
        }
    }

    [DllImport("libc")] public static extern int gettid();
}

sealed class Box
{
    long a, b, c; // 40 bytes with the header
    public long Sum => a + b + c;
}

static class Allocations
{
    static object last;

    /// <summary>Allocates 80 MB in boxes; returns how much, in bytes.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Small()
    {
        long before = GC.GetAllocatedBytesForCurrentThread();
        for (int i = 0; i < 2 << 20; i++) MakeBox();
        return GC.GetAllocatedBytesForCurrentThread() - before;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void MakeBox() => last = new Box();

    /// <summary>Allocates 100 arrays of a MB each.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Large()
    {
        long before = GC.GetAllocatedBytesForCurrentThread();
        for (int i = 0; i < 100; i++) MakeArray();
        return GC.GetAllocatedBytesForCurrentThread() - before;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void MakeArray() => last = new byte[1 << 20];
}

class Outer : Exception { }

class InFilter : Exception { }

class Swallowed : Exception { }

class InFinally : Exception { }

static class Exceptions
{
    static int sink;

    /// <summary>
    /// Throws Outer. While it looks for its handler, a filter throws and catches
    /// InFilter, then throws Swallowed, which ends the filter. On the way to the
    /// handler a finally throws and catches InFinally.
    /// </summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Throw()
    {
        try { Through(); }
        catch (Outer) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Through()
    {
        try
        {
            try { ThrowOuter(); }
            finally { Finally(); }
        }
        catch (Exception) when (Filter()) { sink--; }
    }

    /// <summary>Throws Outer; on the way to its handler InFinally is thrown, caught, rethrown and caught.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void RethrowInFinally()
    {
        try
        {
            try { ThrowOuter(); }
            finally { Rethrow(); }
        }
        catch (Outer) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Rethrow()
    {
        try { ThrowAgain(); }
        catch (InFinally) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowAgain()
    {
        try { ThrowInFinally(); }
        catch (InFinally)
        {
            sink++;
            throw;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowOuter() => throw new Outer();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Filter()
    {
        try { ThrowInFilter(); }
        catch (InFilter) { sink++; }
        throw new Swallowed();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowInFilter() => throw new InFilter();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Finally()
    {
        try { ThrowInFinally(); }
        catch (InFinally) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowInFinally() => throw new InFinally();
}

static class Contention
{
    static readonly object monitor = new();
    static readonly Lock newLock = new();

    /// <summary>Waits for a lock that another thread has; returns that one's thread id.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int OfMonitor() =>
        WithOwner(held => { lock (monitor) held(); }, WaitForMonitor);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void WaitForMonitor() { lock (monitor) { } }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int OfLock() =>
        WithOwner(held => { lock (newLock) held(); }, WaitForLock);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void WaitForLock() { lock (newLock) { } }

    /// <summary>Another thread has the lock until this one waits for it, and 100 ms more.</summary>
    static int WithOwner(Action<Action> hold, Action wait)
    {
        int owner = 0;
        bool next = false; // the next wait is the one for the lock, not for the owner's start
        Thread waiter = Thread.CurrentThread;
        using var owned = new ManualResetEventSlim();
        var thread = new Thread(() => hold(() =>
        {
            owner = Program.gettid();
            owned.Set();
            SpinWait.SpinUntil(
                () => Volatile.Read(ref next) && waiter.ThreadState.HasFlag(ThreadState.WaitSleepJoin), 10_000);
            Thread.Sleep(100);
        }));
        thread.Start();
        owned.Wait();
        Volatile.Write(ref next, true);
        wait();
        thread.Join();
        return owner;
    }
}

static class Threads
{
    /// <summary>Starts a thread, waits for its end, and returns its id.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int One()
    {
        int id = 0;
        var thread = new Thread(() => id = Program.gettid());
        Start(thread);
        thread.Join();
        return id;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Start(Thread thread) => thread.Start();

    /// <summary>Many threads that throw and allocate for a second.</summary>
    public static void Crowd(int count)
    {
        var threads = new List<Thread>();
        long end = Environment.TickCount64 + 1000;
        for (int i = 0; i < count; i++)
        {
            var thread = new Thread(() =>
            {
                while (Environment.TickCount64 < end)
                {
                    Exceptions.Throw();
                    for (int k = 0; k < 1000; k++) GC.KeepAlive(new byte[1000]);
                }
            });
            thread.Start();
            threads.Add(thread);
        }
        foreach (Thread thread in threads) thread.Join();
    }
}

static class Collections
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Induced() => GC.Collect(1);
}
