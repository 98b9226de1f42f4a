using System.Threading;

namespace Deadlocks;

/// <summary>Circles of monitors, and of Lock and ReaderWriterLockSlim.</summary>
static class Monitors
{
    public static void Fill()
    {
        Two();
        Three();
        WithLock();
        LockAndWriter();
        Writers();
        Chain();
    }

    /// <summary>Two locks in opposite orders.</summary>
    static void Two()
    {
        var order = new Order();
        var stock = new Stock();
        var meet = Zoo.Meeting(2);
        Zoo.Start("two", "1", () => { lock (order) { meet(); lock (stock) stock.Left--; } });
        Zoo.Start("two", "2", () => { lock (stock) { meet(); lock (order) order.Sum++; } });
        Zoo.Start("two", "v", () => { Zoo.Turn(300); lock (order) order.Sum++; });
        Zoo.Says("two", Truth.Deadlock, ["1", "2"], ["v"]);
    }

    static void Three()
    {
        object[] locks = [new Order(), new Stock(), new Invoice()];
        var meet = Zoo.Meeting(3);
        for (int i = 0; i < 3; i++)
        {
            int n = i;
            Zoo.Start("three", $"{n}", () => { lock (locks[n]) { meet(); lock (locks[(n + 1) % 3]) { } } });
        }
        Zoo.Start("three", "v", () => { Zoo.Turn(300); lock (locks[1]) { } });
        Zoo.Says("three", Truth.Deadlock, ["0", "1", "2"], ["v"]);
    }

    static void WithLock()
    {
#if NET9_0_OR_GREATER
        var order = new Order();
        var gate = new Lock();
        var meet = Zoo.Meeting(2);
        Zoo.Start("mixed", "1", () => { lock (order) { meet(); lock (gate) { } } });
        Zoo.Start("mixed", "2", () => { lock (gate) { meet(); lock (order) { } } });
        Zoo.Start("mixed", "v", () => { Zoo.Turn(300); lock (gate) { } });
        Zoo.Says("mixed", Truth.Deadlock, ["1", "2"], ["v"]);
#endif
    }

    static void LockAndWriter()
    {
#if NET9_0_OR_GREATER
        var gate = new Lock();
#else
        var gate = new object();
#endif
        var table = new ReaderWriterLockSlim();
        var meet = Zoo.Meeting(2);
        Zoo.Start("writer", "1", () => { lock (gate) { meet(); table.EnterReadLock(); } });
        Zoo.Start("writer", "2", () => { table.EnterWriteLock(); meet(); lock (gate) { } });
        Zoo.Start("writer", "v", () => { Zoo.Turn(300); table.EnterUpgradeableReadLock(); });
        Zoo.Says("writer", Truth.Deadlock, ["1", "2"], ["v"]);
    }

    static void Writers()
    {
        ReaderWriterLockSlim a = new(), b = new(LockRecursionPolicy.SupportsRecursion);
        var meet = Zoo.Meeting(2);
        Zoo.Start("writers", "1", () => { a.EnterWriteLock(); meet(); b.EnterWriteLock(); });
        Zoo.Start("writers", "2", () => { b.EnterUpgradeableReadLock(); meet(); a.EnterWriteLock(); });
        Zoo.Says("writers", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>Victims one behind the other: each holds what the next one wants.</summary>
    static void Chain()
    {
        var order = new Order();
        var stock = new Stock();
        var meet = Zoo.Meeting(2);
        var held = new ManualResetEventSlim();
        Zoo.Start("chain", "1", () => { lock (order) lock (order) { held.Set(); meet(); lock (stock) { } } });
        Zoo.Start("chain", "2", () => { lock (stock) { meet(); lock (order) { } } });
        held.Wait(); // or else the first victim gets the lock
        object before = order;
        for (int i = 0; i < 6; i++)
        {
            object own = new Invoice(), wanted = before;
            var taken = new ManualResetEventSlim();
            Zoo.Start("chain", $"v{i}", () => { lock (own) { taken.Set(); lock (wanted) { } } });
            taken.Wait();
            before = own;
        }
        Zoo.Says("chain", Truth.Deadlock, ["1", "2"], ["v0", "v1", "v2", "v3", "v4", "v5"]);
    }
}
