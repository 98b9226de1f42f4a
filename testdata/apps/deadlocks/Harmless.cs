using System.Threading;
using System.Threading.Tasks;

namespace Deadlocks;

/// <summary>What looks like a deadlock, but is none, or none that can be proved.</summary>
static class Harmless
{
    public static void Fill()
    {
        // Two locks in opposite orders, but one gives up after an hour.
        Order order = new();
        Stock stock = new();
        var meet = Zoo.Meeting(2);
        Zoo.Start("timed", "1", () => { lock (order) { meet(); if (Monitor.TryEnter(stock, 3_600_000)) { } } });
        Zoo.Start("timed", "2", () => { lock (stock) { meet(); lock (order) { } } });
        Zoo.Says("timed", Truth.Suspected, ["1", "2"]);

        // Waits for a pulse: anybody may pulse.
        Order one = new(), two = new();
        Zoo.Start("pulse", "1", () => { lock (one) lock (two) Monitor.Wait(two); });
        Zoo.Start("pulse", "2", () => { Zoo.Turn(300); lock (two) lock (one) { } });
        Zoo.Says("pulse", Truth.None, ["1", "2"]);

        // A semaphore has no owner: another thread may release it.
        var semaphore = new SemaphoreSlim(1);
        Zoo.Start("semaphore", "1", () => { semaphore.Wait(); semaphore.Wait(); });
        Zoo.Says("semaphore", Truth.None, ["1"]);

        // A lock is held over the wait for a task that somebody completes.
        var done = new TaskCompletionSource();
        Order three = new();
        Zoo.Start("promise", "1", () => { lock (three) done.Task.Wait(); });
        Zoo.Start("promise", "2", () => { Zoo.Turn(300); lock (three) { } });
        Zoo.Says("promise", Truth.None, ["1", "2"]);

        // A task that runs, and whose thread waits for nothing of ours.
        Order four = new();
        Zoo.Start("running", "1", () =>
        {
            lock (four) Task.Run(() => { Zoo.Name("running", "2"); Thread.Sleep(Timeout.Infinite); }).Wait();
        });
        Zoo.Start("running", "3", () => { Zoo.Turn(300); lock (four) { } });
        Zoo.Says("running", Truth.None, ["1", "2", "3"]);

        // WhenAny ends with the first of its tasks.
        Order five = new();
        Zoo.Start("any", "1", () =>
        {
            lock (five)
                Task.WhenAny(done.Task, Task.Run(() => { Zoo.Name("any", "2"); lock (five) { } })).Wait();
        });
        Zoo.Says("any", Truth.None, ["1", "2"]);

        // So does WaitAny.
        Order seven = new();
        Zoo.Start("first", "1", () =>
        {
            lock (seven) Task.WaitAny(done.Task, Task.Run(() => { Zoo.Name("first", "2"); lock (seven) { } }));
        });
        Zoo.Says("first", Truth.None, ["1", "2"]);

        // Readers do not exclude each other.
        var table = new ReaderWriterLockSlim();
        var read = Zoo.Meeting(2);
        Order six = new();
        Zoo.Start("readers", "1", () => { table.EnterReadLock(); read(); lock (six) Thread.Sleep(Timeout.Infinite); });
        Zoo.Start("readers", "2", () => { table.EnterReadLock(); read(); Zoo.Turn(300); lock (six) { } });
        Zoo.Says("readers", Truth.None, ["1", "2"]);
    }
}
