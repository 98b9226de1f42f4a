using System;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Waits;

/// <summary>Threads that wait for threads, for a time, and for handles.</summary>
static class Handles
{
    public static void Fill()
    {
        Thread rests = Zoo.Start("joined", Zoo.Rest);
        Zoo.Also(new Wait { Thread = "joined", Kind = "Thread.Sleep", Timeout = -1 });
        Zoo.Waits(new() { Thread = "join", Kind = "Thread.Join", Type = "System.Threading.Thread", Object = rests,
            Owner = "joined", Timeout = -1 }, () => rests.Join());
        Zoo.Waits(new() { Thread = "join-timed", Kind = "Thread.Join", Type = "System.Threading.Thread",
            Object = rests, Owner = "joined", Timeout = 3_600_000 }, () => rests.Join(3_600_000));
        Zoo.Waits(new() { Thread = "sleep", Kind = "Thread.Sleep" }, () => Thread.Sleep(3_600_000));

        var auto = new AutoResetEvent(false);
        Zoo.Waits(new() { Thread = "auto", Kind = "WaitHandle.WaitOne", Type = "System.Threading.AutoResetEvent",
            Object = auto }, () => auto.WaitOne());
        var manual = new ManualResetEvent(false);
        Zoo.Waits(new() { Thread = "manual", Kind = "WaitHandle.WaitOne", Type = "System.Threading.ManualResetEvent",
            Object = manual }, () => manual.WaitOne());
        var semaphore = new Semaphore(0, 1);
        Zoo.Waits(new() { Thread = "semaphore", Kind = "WaitHandle.WaitOne", Type = "System.Threading.Semaphore",
            Object = semaphore, Waiters = 1, Detail = "count 0" }, () => semaphore.WaitOne(3_600_000));
        var plain = new EventWaitHandle(false, EventResetMode.ManualReset);
        for (int i = 0; i < 2; i++)
            Zoo.Waits(new() { Thread = $"handle-{i}", Kind = "WaitHandle.WaitOne", Type = "System.Threading.EventWaitHandle",
                Object = plain, Waiters = 2, Detail = "manual-reset" }, () => plain.WaitOne());
        WaitHandle[] two = [new AutoResetEvent(false), new ManualResetEvent(false)];
        Zoo.Waits(new() { Thread = "any", Kind = "WaitHandle.WaitAny", Detail = "2 handles" }, () => WaitHandle.WaitAny(two));
        Zoo.Waits(new() { Thread = "all", Kind = "WaitHandle.WaitAll", Detail = "2 handles" }, () => WaitHandle.WaitAll(two));
        AutoResetEvent done = new(false), next = new(false);
        Zoo.Waits(new() { Thread = "signal-and-wait", Kind = "WaitHandle.WaitOne", Waiters = 1 }, () => WaitHandle.SignalAndWait(done, next));
        Mutexes();
    }

    const string mutexType = "System.Threading.Mutex";

    static Mutex first, second;

    static void Mutexes()
    {
        var mutex = new Mutex(false);
        Zoo.Holds(new() { Thread = "mutex-held", Kind = "WaitHandle.WaitOne", Type = mutexType, Object = mutex, Recursion = 1,
            Waiters = 2 }, rest => { mutex.WaitOne(); rest(); mutex.ReleaseMutex(); });
        for (int i = 0; i < 2; i++)
            Zoo.Waits(new() { Thread = $"mutex-{i}", Kind = "WaitHandle.WaitOne", Type = mutexType, Object = mutex,
                Owner = "mutex-held", Recursion = 1, Waiters = 2, Timeout = -1 }, () => mutex.WaitOne());

        // Taken three times, and nobody waits for it.
        var often = new Mutex(true);
        often.ReleaseMutex();
        Zoo.Holds(new() { Thread = "mutex-often", Kind = "WaitHandle.WaitOne", Type = mutexType, Object = often, Recursion = 3,
            Waiters = 0 }, rest => { for (int i = 0; i < 3; i++) often.WaitOne(); rest(); often.ReleaseMutex(); });

        // Its stack does not refer to what it has taken: the thread itself knows.
        (first, second) = (new Mutex(), new Mutex());
        Zoo.Holds(new() { Thread = "mutex-two", Kind = "WaitHandle.WaitOne", Type = mutexType, Recursion = 1, Waiters = 0 },
            rest => { Take(); rest(); });
        Zoo.Also(new Hold { Thread = "mutex-two", Kind = "WaitHandle.WaitOne", Type = mutexType, Recursion = 2, Waiters = 1 });
        WaitHandle[] both = [new AutoResetEvent(true), second];
        Zoo.Waits(new() { Thread = "all-mutex", Kind = "WaitHandle.WaitAll", Detail = "2 handles", Owner = "mutex-two" },
            () => WaitHandle.WaitAll(both));

        string name = $"clrsnap-waits-{Environment.ProcessId}";
        var named = new Mutex(false, name);
        var taken = new ManualResetEventSlim();
        Zoo.Start("named-held", () => { named.WaitOne(); taken.Set(); Zoo.Rest(); });
        if (Environment.Version.Major >= 11) // up to .NET 10 the thread does not know
            Zoo.Also(new Hold { Thread = "named-held", Kind = "WaitHandle.WaitOne", Type = mutexType, Object = named,
                Recursion = 1, Waiters = 0, Detail = "named " + name });
        taken.Wait();
        Zoo.Waits(new() { Thread = "named", Kind = "WaitHandle.WaitOne", Type = mutexType, Object = named,
            Owner = "named-held", Timeout = -1, Detail = "named " + name }, () => named.WaitOne());
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Take()
    {
        first.WaitOne();
        second.WaitOne();
        second.WaitOne();
    }
}
