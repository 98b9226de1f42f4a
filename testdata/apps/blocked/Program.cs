// Threads that wait again and again, each in one way and in a method of its own. The program counts the waits of each
// method, and their time; it says so when it is asked. With --pairs N there are pairs of threads as well that wake
// each other as fast as they can. With --ms N a wait lasts N milliseconds instead of 20.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Blocked;

sealed class Order { }

sealed class Stock { }

/// <summary>The waits in one method: what for, how often and for how long.</summary>
sealed class Way(string kind, string method, string type)
{
    long count, ticks;

    public void Add(long since)
    {
        Interlocked.Add(ref ticks, Stopwatch.GetTimestamp() - since);
        Interlocked.Increment(ref count);
    }

    public override string ToString() =>
        $"TRUTH {kind} Blocked.Program.{method} {type} {Volatile.Read(ref count)} {Truth.Nanoseconds(Volatile.Read(ref ticks))}";
}

static class Truth
{
    public static long Nanoseconds(long ticks) => ticks * (1_000_000_000 / Stopwatch.Frequency);
}

static class Program
{
    static int ms; // of a wait that ends by its timeout

    /// <summary>Nothing is inlined into the methods that wait, so that the primitives are on the stacks.</summary>
    const MethodImplOptions own = MethodImplOptions.NoInlining | MethodImplOptions.NoOptimization;

    static readonly List<Way> ways = [];
    static readonly Order order = new();
    static readonly Stock stock = new();
    static readonly Lock ledger = new();
    static readonly SemaphoreSlim semaphore = new(0);
    static readonly ManualResetEventSlim eventSlim = new();
    static readonly CountdownEvent countdown = new(1);
    static readonly Barrier barrier = new(2);
    static readonly BlockingCollection<int> collection = [];
    static readonly Task never = new TaskCompletionSource().Task;
    static readonly AutoResetEvent handle = new(false), other = new(false);
    static readonly ReaderWriterLockSlim shared = new();
    static readonly Thread sleeper = App.Background("sleeper", () => Thread.Sleep(Timeout.Infinite));

    static void Main(string[] args)
    {
        App.Start(args);
        int pairs = App.Int("pairs", 0);
        ms = App.Int("ms", 20);
        if (!App.Flag("pairs-only"))
        {
            Hold();
            Loop("Monitor.Wait", OnPulse, "Blocked.Order");
            Loop("Monitor.Enter", OnMonitor, "Blocked.Stock");
            Loop("Lock.Enter", OnLock, "System.Threading.Lock");
            Loop("SemaphoreSlim.Wait", OnSemaphore);
            Loop("ManualResetEventSlim.Wait", OnEventSlim);
            Loop("CountdownEvent.Wait", OnCountdown);
            Loop("Barrier.SignalAndWait", OnBarrier);
            Loop("BlockingCollection.Take", OnTake);
            Loop("Task.Wait", OnTask);
            Loop("Thread.Join", OnJoin);
            Loop("WaitHandle.WaitOne", OnHandle);
            Loop("WaitHandle.WaitAny", OnAny);
            Loop("WaitHandle.WaitAll", OnAll);
            Loop("ReaderWriterLockSlim.Read", OnReader);
            Loop("ReaderWriterLockSlim.Write", OnWriter);
            Loop("Thread.Sleep", OnSleep);
            // Workers of the pool that have nothing to do, and a timer.
            new Timer(_ => ThreadPool.QueueUserWorkItem(_ => { })).Change(0, 30);
        }
        for (int i = 0; i < pairs; i++) Pair(i);
        App.Answer = _ => ways.Select(w => w.ToString()).Prepend($"NOW {Truth.Nanoseconds(Stopwatch.GetTimestamp())}");
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Loop(string kind, Action once, string type = "-")
    {
        var way = new Way(kind, once.Method.Name, type);
        ways.Add(way);
        App.Background(once.Method.Name, () =>
        {
            while (true)
            {
                long since = Stopwatch.GetTimestamp();
                once();
                way.Add(since);
            }
        });
    }

    /// <summary>Holds the locks for a while, lets those in that wait, and begins again.</summary>
    static void Hold()
    {
        App.Background("holds-stock", () => { while (true) { lock (stock) Thread.Sleep(ms); Thread.Sleep(1); } });
        App.Background("holds-ledger", () =>
        {
            while (true)
            {
                lock (ledger) Thread.Sleep(ms);
                Thread.Sleep(1);
            }
        });
        App.Background("writes", () => { shared.EnterWriteLock(); Thread.Sleep(Timeout.Infinite); });
        while (shared.TryEnterReadLock(0)) { shared.ExitReadLock(); Thread.Sleep(1); }
    }

    [MethodImpl(own)]
    static void OnPulse() { lock (order) Monitor.Wait(order, ms); }

    [MethodImpl(own)]
    static void OnMonitor() { lock (stock) { } Thread.Sleep(1); }

    [MethodImpl(own)]
    static void OnLock() { lock (ledger) { } Thread.Sleep(1); }

    [MethodImpl(own)]
    static void OnSemaphore() => semaphore.Wait(ms);

    [MethodImpl(own)]
    static void OnEventSlim() => eventSlim.Wait(ms);

    [MethodImpl(own)]
    static void OnCountdown() => countdown.Wait(ms);

    [MethodImpl(own)]
    static void OnBarrier() => barrier.SignalAndWait(ms);

    [MethodImpl(own)]
    static void OnTake() => collection.TryTake(out _, ms);

    [MethodImpl(own)]
    static void OnTask() => never.Wait(ms);

    [MethodImpl(own)]
    static void OnJoin() => sleeper.Join(ms);

    [MethodImpl(own)]
    static void OnHandle() => handle.WaitOne(ms);

    [MethodImpl(own)]
    static void OnAny() => WaitHandle.WaitAny([handle, other], ms);

    [MethodImpl(own)]
    static void OnAll() => WaitHandle.WaitAll([handle, other], ms);

    [MethodImpl(own)]
    static void OnReader() => shared.TryEnterReadLock(ms);

    [MethodImpl(own)]
    static void OnWriter() => shared.TryEnterWriteLock(ms);

    [MethodImpl(own)]
    static void OnSleep() => Thread.Sleep(ms);

    /// <summary>Two threads, of which one waits while the other runs.</summary>
    static void Pair(int i)
    {
        AutoResetEvent ping = new(false), pong = new(true);
        var way = new Way("WaitHandle.WaitOne", nameof(Turn), "-");
        ways.Add(way);
        App.Background($"ping-{i}", () => { while (true) Turn(way, ping, pong); });
        App.Background($"pong-{i}", () => { while (true) Turn(way, pong, ping); });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Turn(Way way, AutoResetEvent mine, AutoResetEvent next)
    {
        long since = Stopwatch.GetTimestamp();
        mine.WaitOne();
        way.Add(since);
        next.Set();
    }
}
