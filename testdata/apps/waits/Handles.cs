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
            Object = rests, Owner = "joined" }, () => rests.Join(3_600_000));
        Zoo.Waits(new() { Thread = "sleep", Kind = "Thread.Sleep" }, () => Thread.Sleep(3_600_000));

        var auto = new AutoResetEvent(false);
        Zoo.Waits(new() { Thread = "auto", Kind = "WaitHandle.WaitOne", Type = "System.Threading.AutoResetEvent",
            Object = auto }, () => auto.WaitOne());
        var manual = new ManualResetEvent(false);
        Zoo.Waits(new() { Thread = "manual", Kind = "WaitHandle.WaitOne", Type = "System.Threading.ManualResetEvent",
            Object = manual }, () => manual.WaitOne());
        var semaphore = new Semaphore(0, 1);
        Zoo.Waits(new() { Thread = "semaphore", Kind = "WaitHandle.WaitOne", Type = "System.Threading.Semaphore",
            Object = semaphore }, () => semaphore.WaitOne(3_600_000));
        var mutex = new Mutex(false);
        Zoo.Start("mutex-held", () => { mutex.WaitOne(); Zoo.Rest(); });
        Thread.Sleep(100);
        Zoo.Waits(new() { Thread = "mutex", Kind = "WaitHandle.WaitOne", Type = "System.Threading.Mutex",
            Object = mutex }, () => mutex.WaitOne());
        WaitHandle[] two = [new AutoResetEvent(false), new ManualResetEvent(false)];
        Zoo.Waits(new() { Thread = "any", Kind = "WaitHandle.WaitAny" }, () => WaitHandle.WaitAny(two));
        Zoo.Waits(new() { Thread = "all", Kind = "WaitHandle.WaitAll" }, () => WaitHandle.WaitAll(two));
    }
}
