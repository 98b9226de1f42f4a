using System;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Deadlocks;

/// <summary>Threads that contend for locks as fast as they can, and never for long.</summary>
static class Healthy
{
    static readonly object[] ordered = [new Order(), new Stock(), new Invoice(), new Order(), new Stock()];
    static readonly ReaderWriterLockSlim table = new();
    static readonly object crossed1 = new Order(), crossed2 = new Stock(), gate = new Invoice(),
        gated1 = new Order(), gated2 = new Stock();
    static readonly SemaphoreSlim permits = new(2);
    static long rounds;

    public static void Start()
    {
        // Many locks, always in the same order.
        for (int i = 0; i < 4; i++)
            Loop($"ordered-{i}", random =>
            {
                int a = random.Next(4), b = a + 1 + random.Next(4 - a);
                lock (ordered[a]) lock (ordered[b]) Spin(random);
            });
        // Two locks in opposite orders, with timeouts.
        for (int i = 0; i < 2; i++)
        {
            bool first = i == 0;
            Loop($"crossed-{i}", random =>
            {
                lock (first ? crossed1 : crossed2)
                {
                    Spin(random);
                    object other = first ? crossed2 : crossed1;
                    if (Monitor.TryEnter(other, 20)) Monitor.Exit(other);
                }
            });
        }
        // Two locks in opposite orders, but never at the same time: only who has the gate takes them.
        for (int i = 0; i < 2; i++)
        {
            (object a, object b) = i == 0 ? (gated1, gated2) : (gated2, gated1);
            Loop($"gated-{i}", random => { lock (gate) lock (a) lock (b) Spin(random); });
        }
        // A convoy.
        for (int i = 0; i < 4; i++)
            Loop($"convoy-{i}", _ => { lock (permits) Thread.Sleep(1); });
        // Readers, writers and upgraders.
        for (int i = 0; i < 3; i++)
            Loop($"reads-{i}", random =>
            {
                table.EnterReadLock();
                try { Spin(random); } finally { table.ExitReadLock(); }
            });
        Loop("upgrades", random =>
        {
            table.EnterUpgradeableReadLock();
            table.EnterWriteLock();
            Spin(random);
            table.ExitWriteLock();
            table.ExitUpgradeableReadLock();
        });
        // Threads and tasks that are waited for under a lock, and that lock something else.
        Loop("joins", random =>
        {
            lock (table)
            {
                var t = new Thread(() => { lock (ordered[2]) Spin(random); });
                t.Start();
                t.Join();
            }
        });
        for (int i = 0; i < 2; i++)
        {
            object held = i == 0 ? crossed1 : table;
            Loop($"tasks-{i}", _ => { lock (held) Task.Run(() => { lock (ordered[3]) { } }).Wait(); });
        }
        Loop("async", _ => Async().GetAwaiter().GetResult());
        // Permits: always in the same order, under locks and by await, by threads and by methods that are suspended.
        for (int i = 0; i < 3; i++)
            Loop($"permits-{i}", _ => Both(true).GetAwaiter().GetResult());
        for (int i = 0; i < 3; i++)
            Loop($"locked-{i}", random =>
            {
                first.Wait();
                try { lock (ordered[2]) Spin(random); }
                finally { first.Release(); }
            });
        for (int i = 0; i < 20; i++) _ = Forever();
        // A task that is completed behind a lock, which nobody holds over the wait for it.
        Loop("completes", random =>
        {
            var done = new TaskCompletionSource();
            Task other = Task.Run(() => { lock (ordered[4]) Spin(random); done.SetResult(); });
            done.Task.Wait();
            lock (ordered[4]) Spin(random);
            other.Wait();
        });
    }

    static readonly SemaphoreSlim first = new(1), second = new(1, 1);

    static async Task Both(bool yields)
    {
        await first.WaitAsync();
        try
        {
            if (yields) await Task.Yield();
            await second.WaitAsync();
            try { await Task.Delay(1); lock (ordered[3]) Interlocked.Increment(ref rounds); }
            finally { second.Release(); }
        }
        finally
        {
            first.Release();
        }
    }

    static async Task Forever() { while (true) await Both(false); }

    static async Task Async()
    {
        await permits.WaitAsync();
        try { await Task.Yield(); lock (ordered[1]) Interlocked.Increment(ref rounds); } finally { permits.Release(); }
    }

    static void Spin(Random random)
    {
        Interlocked.Increment(ref rounds);
        Thread.SpinWait(random.Next(2000));
    }

    static void Loop(string name, Action<Random> once) => App.Background(name, () =>
    {
        var random = new Random(name.GetHashCode());
        while (true) once(random);
    });
}
