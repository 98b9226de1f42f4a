using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Workloads;

/// <summary>Programs whose threads share things, and wait for one another no longer than they must.</summary>
static class Sharing
{
    /// <summary>A lock that all want often, and that nobody holds for long.</summary>
    public static void ShortLock(int threads)
    {
        var gate = new object();
        var totals = new Dictionary<int, long>();
        Work.Threads("tills", threads, number =>
        {
            long amount = Cost(number);
            lock (gate) totals[number] = totals.GetValueOrDefault(number) + amount;
            if (Work.Done % 64 == 0) Thread.Sleep(1);
        });
    }

    static long Cost(int seed)
    {
        long sum = seed;
        for (int i = 0; i < 5000; i++) sum = sum * 31 + i;
        return sum;
    }

    public static void Readers(int threads)
    {
        var gate = new ReaderWriterLockSlim();
        long rate = 1;
        Work.Threads("readers", threads, _ =>
        {
            gate.EnterReadLock();
            long read = rate;
            gate.ExitReadLock();
            if (Cost((int)read) == 0) Work.Wrong = "nothing was read";
            if (Work.Done % 64 == 0) Thread.Sleep(1);
        });
        Work.Threads("writer", 1, _ =>
        {
            Thread.Sleep(20);
            gate.EnterWriteLock();
            rate++;
            gate.ExitWriteLock();
        });
    }

    /// <summary>More tasks than may do it at a time, each of which gets its turn.</summary>
    public static void Throttled(int threads)
    {
        var turns = new SemaphoreSlim(Math.Max(2, threads / 3));
        for (int i = 0; i < threads; i++) _ = Task.Run(() => OneByOneAsync(turns));
    }

    static async Task OneByOneAsync(SemaphoreSlim turns)
    {
        while (!App.Ending)
        {
            await turns.WaitAsync();
            await Task.Delay(5);
            turns.Release();
            Work.Count();
        }
    }

    /// <summary>A mailbox of Monitor.Wait and Pulse.</summary>
    public static void Mailbox(int threads)
    {
        var mail = new Queue<int>();
        Work.Threads("readers", threads, _ =>
        {
            lock (mail)
            {
                while (mail.Count == 0) Monitor.Wait(mail);
                mail.Dequeue();
            }
        });
        Work.Threads("writer", 1, _ =>
        {
            Thread.Sleep(4);
            lock (mail)
            {
                mail.Enqueue(1);
                Monitor.Pulse(mail);
            }
        });
    }

    /// <summary>Threads that work in step, the quicker ones waiting for the slowest.</summary>
    public static void Phases(int threads)
    {
        var barrier = new Barrier(threads);
        Work.Threads("phase", threads, number =>
        {
            for (int i = 0; i < 20 * (1 + number % 3); i++) Cost(i);
            Thread.Sleep(2);
            barrier.SignalAndWait();
        });
    }

    /// <summary>Consumers that have nothing to do for most of the time.</summary>
    public static void Consumers(int threads)
    {
        var jobs = new BlockingCollection<int>();
        Work.Threads("consumer", threads, _ => Cost(jobs.Take()));
        Work.Threads("producer", 1, _ =>
        {
            jobs.Add(1);
            Thread.Sleep(10);
        });
    }

    /// <summary>A producer that a full queue slows down to what its consumers can do, as it is meant to.</summary>
    public static void Backpressure(int threads)
    {
        var jobs = new BlockingCollection<int>(boundedCapacity: 16);
        Work.Threads("consumer", threads, _ =>
        {
            int job = jobs.Take();
            Thread.Sleep(2); // stands for a disk
            Cost(job);
        });
        Work.Threads("producer", 1, jobs.Add);
    }

    public static void Channels(int threads)
    {
        var channel = Channel.CreateBounded<int>(100);
        for (int i = 0; i < threads; i++)
        {
            _ = Task.Run(async () =>
            {
                await foreach (int job in channel.Reader.ReadAllAsync())
                {
                    Cost(job);
                    Work.Count();
                }
            });
        }
        _ = Task.Run(async () =>
        {
            for (int n = 0; !App.Ending; n++)
            {
                await channel.Writer.WriteAsync(n % 100);
                if (n % 50 == 0) await Task.Delay(5);
            }
        });
    }

    /// <summary>A mutex and a lock that are held as long as the program runs, and that nobody else wants.</summary>
    public static void OneInstance(int threads) => App.Background("instance", () =>
    {
        using var mutex = new Mutex(initiallyOwned: true);
        object state = mutex;
        lock (state)
        {
            for (int i = 0; !App.Ending; i = (i + 1) % Math.Max(1, threads))
            {
                Cost(i);
                Work.Count();
                Thread.Sleep(20);
            }
        }
    });
}
