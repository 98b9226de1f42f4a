using System;
using System.Threading;

namespace Deadlocks;

/// <summary>Circles of mutexes, and of joins with a timeout.</summary>
static class Mutexes
{
    public static void Fill()
    {
        Two();
        WithMonitor();
        Named();
        All();
        Joins();
        Timed();
        Any();
        Abandoned();
    }

    /// <summary>Two mutexes in opposite orders.</summary>
    static void Two()
    {
        Mutex a = new(), b = new();
        var meet = Zoo.Meeting(2);
        Zoo.Start("mutexes", "1", () => { a.WaitOne(); meet(); b.WaitOne(); });
        Zoo.Start("mutexes", "2", () => { b.WaitOne(); meet(); a.WaitOne(); });
        Zoo.Start("mutexes", "v", () => { Zoo.Turn(300); a.WaitOne(); });
        Zoo.Says("mutexes", Truth.Deadlock, ["1", "2"], ["v"]);
    }

    static void WithMonitor()
    {
        var mutex = new Mutex();
        var order = new Order();
        var meet = Zoo.Meeting(2);
        Zoo.Start("mutex", "1", () => { mutex.WaitOne(); meet(); lock (order) { } });
        Zoo.Start("mutex", "2", () => { lock (order) { meet(); mutex.WaitOne(); } });
        Zoo.Says("mutex", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>Other processes could have it as well.</summary>
    static void Named()
    {
        var mutex = new Mutex(false, $"clrsnap-deadlocks-{Environment.ProcessId}");
        var order = new Order();
        var meet = Zoo.Meeting(2);
        Zoo.Start("named", "1", () => { mutex.WaitOne(); meet(); lock (order) { } });
        Zoo.Start("named", "2", () => { lock (order) { meet(); mutex.WaitOne(); } });
        Zoo.Says("named", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>Who waits for all of several needs each.</summary>
    static void All()
    {
        Mutex a = new(), b = new();
        var meet = Zoo.Meeting(2);
        Zoo.Start("every", "1", () => { a.WaitOne(); meet(); b.WaitOne(); });
        Zoo.Start("every", "2", () => { b.WaitOne(); meet(); WaitHandle.WaitAll([new ManualResetEvent(true), a]); });
        Zoo.Says("every", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>Each waits for the end of the other.</summary>
    static void Joins()
    {
        Zoo.Start("joins", "1", () =>
        {
            Thread first = Thread.CurrentThread;
            Zoo.Start("joins", "2", () => first.Join()).Join();
        });
        Zoo.Says("joins", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>One gives up after an hour.</summary>
    static void Timed()
    {
        var mutex = new Mutex();
        Zoo.Start("given", "1", () =>
        {
            mutex.WaitOne();
            Zoo.Start("given", "2", () => mutex.WaitOne()).Join(3_600_000);
        });
        Zoo.Says("given", Truth.Suspected, ["1", "2"]);
    }

    /// <summary>Who waits for any of several does not need this one.</summary>
    static void Any()
    {
        Mutex a = new(), b = new();
        var meet = Zoo.Meeting(2);
        Zoo.Start("either", "1", () => { a.WaitOne(); meet(); b.WaitOne(); });
        Zoo.Start("either", "2", () => { b.WaitOne(); meet(); WaitHandle.WaitAny([new ManualResetEvent(false), a]); });
        Zoo.Says("either", Truth.None, ["1", "2"]);
    }

    /// <summary>The runtime takes a mutex from a thread that has ended. Who gets it owns it.</summary>
    static void Abandoned()
    {
        Mutex a = new(), b = new();
        Thread owner = Zoo.Start("abandoned", "owner", () => { a.WaitOne(); b.WaitOne(); });
        owner.Join();
        void Take(Mutex m)
        {
            try { m.WaitOne(); }
            catch (AbandonedMutexException) { }
        }
        var meet = Zoo.Meeting(2);
        Zoo.Start("abandoned", "1", () => { Take(a); meet(); Take(b); });
        Zoo.Start("abandoned", "2", () => { Take(b); meet(); Take(a); });
        Zoo.Says("abandoned", Truth.Deadlock, ["1", "2"]);
    }
}
