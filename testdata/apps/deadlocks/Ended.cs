using System.Threading;

namespace Deadlocks;

/// <summary>Locks whose owners have ended.</summary>
static class Ended
{
    public static void Fill()
    {
        var order = new Order();
        Dead("dead", () => Monitor.Enter(order));
        Zoo.Start("dead", "1", () => { lock (order) { } });
        Zoo.Start("dead", "2", () => { lock (order) { } });
        Zoo.Says("dead", Truth.Deadlock, ["1", "2"], note: "ended");

        // Somebody waits already when the owner ends.
        var stock = new Stock();
        var taken = new ManualResetEventSlim();
        var end = new ManualResetEventSlim();
        Thread owner = Zoo.Start("gone", "owner", () => { Monitor.Enter(stock); taken.Set(); end.Wait(); });
        taken.Wait();
        Thread waiter = Zoo.Start("gone", "1", () => { lock (stock) { } });
        while (!Zoo.Waits(waiter)) Thread.Sleep(1);
        end.Set();
        owner.Join();
        Zoo.Says("gone", Truth.Deadlock, ["1"], note: "ended");

        var table = new ReaderWriterLockSlim();
        Dead("table", () => table.EnterWriteLock());
        Zoo.Start("table", "1", () => table.EnterReadLock());
        Zoo.Says("table", Truth.Deadlock, ["1"], note: "ended");
        // Those who read have ended; one of those who read another lock lives.
        foreach (string set in new[] { "read", "reads" })
        {
            var read = new ReaderWriterLockSlim(LockRecursionPolicy.SupportsRecursion);
            Dead(set, () => { read.EnterReadLock(); read.EnterReadLock(); });
            if (set == "reads") Zoo.Start(set, "living", () => { read.EnterReadLock(); Thread.Sleep(-1); });
            while (read.CurrentReadCount < (set == "reads" ? 2 : 1)) Thread.Sleep(1);
            Zoo.Start(set, "1", () => read.EnterWriteLock());
            Zoo.Says(set, Truth.Deadlock, ["1"], note: "ended");
        }
#if NET9_0_OR_GREATER

        var gate = new Lock();
        Dead("exited", () => gate.Enter());
        Zoo.Start("exited", "1", () => { lock (gate) { } });
        Zoo.Says("exited", Truth.Deadlock, ["1"], note: "ended");
#endif
    }

    static void Dead(string set, ThreadStart take) { Thread t = Zoo.Start(set, "owner", () => take()); t.Join(); }
}
