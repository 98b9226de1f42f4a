using System.Collections.Concurrent;
using System.Threading;

namespace Waits;

/// <summary>What is made of monitors.</summary>
static class Semaphores
{
    public static void Fill()
    {
        const string slim = "System.Threading.SemaphoreSlim";
        var none = new SemaphoreSlim(0);
        for (int i = 0; i < 2; i++)
            Zoo.Waits(new() { Thread = $"semaphore-{i}", Kind = "SemaphoreSlim.Wait", Type = slim, Object = none,
                Waiters = 2, Timeout = -1 }, () => none.Wait());
        var timed = new SemaphoreSlim(0);
        Zoo.Waits(new() { Thread = "semaphore-timed", Kind = "SemaphoreSlim.Wait", Type = slim, Object = timed,
            Waiters = 1, Timeout = 3_600_000 }, () => timed.Wait(3_600_000));

        var reset = new ManualResetEventSlim();
        for (int i = 0; i < 2; i++)
            Zoo.Waits(new() { Thread = $"event-{i}", Kind = "ManualResetEventSlim.Wait",
                Type = "System.Threading.ManualResetEventSlim", Object = reset, Waiters = 2, Timeout = -1 },
                () => reset.Wait());

        var countdown = new CountdownEvent(3);
        Zoo.Waits(new() { Thread = "countdown", Kind = "CountdownEvent.Wait", Type = "System.Threading.CountdownEvent",
            Object = countdown, Timeout = -1 }, () => countdown.Wait());

        var barrier = new Barrier(3);
        for (int i = 0; i < 2; i++)
            Zoo.Waits(new() { Thread = $"barrier-{i}", Kind = "Barrier.SignalAndWait", Type = "System.Threading.Barrier",
                Object = barrier, Timeout = -1 }, () => barrier.SignalAndWait());

        var empty = new BlockingCollection<string>();
        Zoo.Waits(new() { Thread = "take", Kind = "BlockingCollection.Take",
            Type = "System.Collections.Concurrent.BlockingCollection<string>", Object = empty, Timeout = -1 },
            () => empty.Take());
        var full = new BlockingCollection<int>(1) { 1 };
        Zoo.Waits(new() { Thread = "add", Kind = "BlockingCollection.Add",
            Type = "System.Collections.Concurrent.BlockingCollection<int>", Object = full, Timeout = -1 },
            () => full.Add(2));
        var consumed = new BlockingCollection<string>();
        Zoo.Waits(new() { Thread = "consume", Kind = "BlockingCollection.Take",
            Type = "System.Collections.Concurrent.BlockingCollection<string>", Object = consumed, Timeout = -1 },
            () => { foreach (string s in consumed.GetConsumingEnumerable()) { } });
    }
}
