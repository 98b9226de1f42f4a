// Lock contention: who waits for how long, and who has the lock meanwhile. What is
// measured is the entry into the lock, its spinning included.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Events;

/// <summary>
/// A thread that takes its lock when it is asked to, for as long as it is asked to.
/// Its events are the kernel's: they do not contend for a lock themselves.
/// </summary>
sealed class Holder
{
    readonly AutoResetEvent asked = new(false), has = new(false);
    readonly Action<int, Action> hold;
    int milliseconds;

    /// <summary>hold takes the lock, calls the action, and sleeps for so many milliseconds.</summary>
    public Holder(string name, Action<int, Action> hold)
    {
        this.hold = hold;
        App.Background(name, Serve);
    }

    void Serve()
    {
        Action taken = () => has.Set();
        while (true)
        {
            asked.WaitOne();
            hold(milliseconds, taken);
        }
    }

    /// <summary>Returns as soon as the lock is taken, for so many milliseconds.</summary>
    public void Take(int milliseconds)
    {
        this.milliseconds = milliseconds;
        asked.Set();
        has.WaitOne();
    }
}

static class Contend
{
    static readonly object monitor = new(), crowded = new();
    static readonly Lock @lock = new();

    const string MonitorHolder = "holds-monitor", LockHolder = "holds-lock";

    public static Lane[] Lanes()
    {
        var monitorHolder = new Holder(MonitorHolder, HoldMonitor);
        var lockHolder = new Holder(LockHolder, HoldLock);
        Site Wait(double often, Holder holder, int milliseconds, Action wait) => new(often, () =>
        {
            holder.Take(Random.Shared.Next(milliseconds / 2, milliseconds * 3 / 2));
            wait();
        });
        Site[] crowd = [new(1, Crowd)];
        return
        [
            new Lane("waits-monitor", 30,
                [Wait(2, monitorHolder, 10, MonitorShort), Wait(1, monitorHolder, 40, MonitorLong)]),
            new Lane("waits-lock", 25, [Wait(3, lockHolder, 12, LockShort), Wait(1, lockHolder, 30, LockLong)]),
            new Lane("crowd-1", 40, crowd), new Lane("crowd-2", 40, crowd), new Lane("crowd-3", 40, crowd),
        ];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void HoldMonitor(int milliseconds, Action taken)
    {
        lock (monitor)
        {
            taken();
            Thread.Sleep(milliseconds);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void HoldLock(int milliseconds, Action taken)
    {
        lock (@lock)
        {
            taken();
            Thread.Sleep(milliseconds);
        }
    }

    /// <summary>The waits of a method; with a known thread that has the lock, those for it.</summary>
    sealed class Waits(string method, Type type, string holder = null)
    {
        readonly Tally all = Truth.Of("contention", "Events.Contend." + method, type);
        readonly Tally forHolder = holder == null ? null : Truth.Of("holder", "Events.Contend." + method, holder);

        public void Since(long begin)
        {
            long ns = (long)Stopwatch.GetElapsedTime(begin).TotalNanoseconds;
            all.Add(1, ns);
            forHolder?.Add(1, ns);
        }
    }

    static readonly Waits monitorShort = new(nameof(MonitorShort), typeof(object), MonitorHolder);
    static readonly Waits monitorLong = new(nameof(MonitorLong), typeof(object), MonitorHolder);
    static readonly Waits lockShort = new(nameof(LockShort), typeof(Lock), LockHolder);
    static readonly Waits lockLong = new(nameof(LockLong), typeof(Lock), LockHolder);
    static readonly Waits crowd = new(nameof(Crowd), typeof(object));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void MonitorShort()
    {
        long begin = Stopwatch.GetTimestamp();
        lock (monitor) monitorShort.Since(begin);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void MonitorLong()
    {
        long begin = Stopwatch.GetTimestamp();
        lock (monitor) monitorLong.Since(begin);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void LockShort()
    {
        long begin = Stopwatch.GetTimestamp();
        lock (@lock) lockShort.Since(begin);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void LockLong()
    {
        long begin = Stopwatch.GetTimestamp();
        lock (@lock) lockLong.Since(begin);
    }

    /// <summary>
    /// Three threads, of which each has the lock for some milliseconds. Now and then a wait is
    /// over before the runtime has stopped spinning: it announces a little fewer.
    /// </summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Crowd()
    {
        if (!Monitor.TryEnter(crowded))
        {
            long begin = Stopwatch.GetTimestamp();
            Monitor.Enter(crowded);
            crowd.Since(begin);
        }
        try { Thread.Sleep(Random.Shared.Next(2, 10)); }
        finally { Monitor.Exit(crowded); }
    }
}
