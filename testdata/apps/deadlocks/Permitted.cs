using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Deadlocks;

/// <summary>What looks like a circle through a permit, but is none: somebody may go on.</summary>
static class Permitted
{
    static readonly List<object> kept = [];

    public static void Fill()
    {
        Later();
        Spare();
        Released();
        Timed();
        Ordered();
        Others();
        Signal();
        Escaped();
        Handed();
    }

    static Task Wants(object gate, string set) => Task.Run(() => { Zoo.Name(set, "2"); lock (gate) { } });

    /// <summary>The holder awaits a timer.</summary>
    static void Later()
    {
        var permits = new SemaphoreSlim(1);
        var order = new Order();
        Zoo.Start("later", "1", () => { lock (order) { kept.Add(Holder()); permits.Wait(); } });
        Zoo.Start("later", "2", () => { Zoo.Turn(300); lock (order) { } });
        Zoo.Says("later", Truth.None, ["1", "2"]);

        async Task Holder()
        {
            await permits.WaitAsync();
            await Task.Delay(TimeSpan.FromHours(3));
            permits.Release();
        }
    }

    /// <summary>One of two permits is with somebody who sleeps.</summary>
    static void Spare()
    {
        var permits = new SemaphoreSlim(2);
        var order = new Order();
        var taken = new CountdownEvent(2);
        Zoo.Start("spare", "3", () =>
        {
            permits.Wait();
            try { taken.Signal(); Thread.Sleep(Timeout.Infinite); }
            finally { permits.Release(); }
        });
        Zoo.Start("spare", "1", () => { lock (order) { _ = Holder(); taken.Wait(); permits.Wait(); } });
        Zoo.Says("spare", Truth.None, ["1", "2", "3"]);

        async Task Holder()
        {
            await permits.WaitAsync();
            taken.Signal();
            await Wants(order, "spare");
            permits.Release();
        }
    }

    /// <summary>Who is in the circle has released its permit before.</summary>
    static void Released()
    {
        var permits = new SemaphoreSlim(1);
        var order = new Order();
        var taken = new ManualResetEventSlim();
        Zoo.Start("released", "1", () =>
        {
            lock (order)
            {
                _ = Holder();
                Zoo.Start("released", "3", () =>
                {
                    permits.Wait();
                    try { taken.Set(); Thread.Sleep(Timeout.Infinite); }
                    finally { permits.Release(); }
                });
                taken.Wait();
                permits.Wait();
            }
        });
        Zoo.Says("released", Truth.None, ["1", "2", "3"]);

        async Task Holder()
        {
            await permits.WaitAsync();
            permits.Release();
            await Wants(order, "released");
            await permits.WaitAsync();
            permits.Release();
        }
    }

    /// <summary>One of them gives up after an hour.</summary>
    static void Timed()
    {
        SemaphoreSlim a = new(1), b = new(1);
        var meet = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        int here = 0;
        kept.Add(Take(a, b));
        kept.Add(Take(b, a));
        Zoo.Says("timedpermit", Truth.None, ["1"]);

        async Task Take(SemaphoreSlim first, SemaphoreSlim second)
        {
            await first.WaitAsync();
            if (Interlocked.Increment(ref here) == 2) meet.SetResult();
            await meet.Task;
            if (await second.WaitAsync(TimeSpan.FromHours(1))) second.Release();
            first.Release();
        }
    }

    /// <summary>Two semaphores in the same order, the second one with somebody who sleeps.</summary>
    static void Ordered()
    {
        SemaphoreSlim a = new(1), b = new(1);
        var taken = new ManualResetEventSlim();
        Zoo.Start("ordered", "1", () =>
        {
            b.Wait();
            try { taken.Set(); Thread.Sleep(Timeout.Infinite); }
            finally { b.Release(); }
        });
        taken.Wait();
        kept.Add(Both());
        kept.Add(Both());
        Zoo.Says("ordered", Truth.None, ["1"]);

        async Task Both()
        {
            await a.WaitAsync();
            await b.WaitAsync();
            b.Release();
            a.Release();
        }
    }

    /// <summary>Another thread, which sleeps, completes the task as well.</summary>
    static void Others()
    {
        var done = new TaskCompletionSource();
        var order = new Order();
        var taken = new ManualResetEventSlim();
        Zoo.Start("others", "1", () => { lock (order) { taken.Set(); done.Task.Wait(); } });
        Zoo.Start("others", "2", () => { taken.Wait(); lock (order) { } done.TrySetResult(); });
        Zoo.Start("others", "3", () => { Thread.Sleep(Timeout.Infinite); done.TrySetResult(); });
        Zoo.Says("others", Truth.None, ["1", "2", "3"]);
    }

    /// <summary>A semaphore that counts work: who waits does not release.</summary>
    static void Signal()
    {
        var work = new SemaphoreSlim(0);
        var order = new Order();
        Zoo.Start("signal", "1", () => { lock (order) work.Wait(); });
        kept.Add(Consumes());
        Zoo.Start("signal", "2", () => { Zoo.Turn(300); lock (order) { } work.Release(); });
        Zoo.Says("signal", Truth.None, ["1", "2"]);

        async Task Consumes() { while (true) await work.WaitAsync(); }
    }

    /// <summary>A task that is completed from a list, by whoever comes along.</summary>
    static void Escaped()
    {
        var done = new TaskCompletionSource();
        lock (kept) kept.Add(done);
        var order = new Order();
        var taken = new ManualResetEventSlim();
        Zoo.Start("escaped", "1", () => { lock (order) { taken.Set(); done.Task.Wait(); } });
        Zoo.Start("escaped", "2", () => { taken.Wait(); lock (order) { } done.TrySetResult(); });
        Zoo.Says("escaped", Truth.None, ["1", "2"]);
    }

    /// <summary>One of two permits was handed to somebody who is not known.</summary>
    static void Handed()
    {
        var permits = new SemaphoreSlim(2);
        var order = new Order();
        var taken = new ManualResetEventSlim();
        permits.Wait(); // kept until somebody asks for it
        Zoo.Start("handed", "1", () => { lock (order) { _ = Holder(); taken.Wait(); permits.Wait(); } });
        Zoo.Says("handed", Truth.None, ["1", "2"]);

        async Task Holder()
        {
            await permits.WaitAsync();
            taken.Set();
            await Wants(order, "handed");
            permits.Release();
        }
    }
}
