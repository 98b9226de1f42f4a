// Waiting for other threads, one blocking primitive each. The method that waits
// announces its own stack.
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Scenarios;

static class Locks
{
    static readonly object contended = new(), signalled = new();
    static readonly ManualResetEventSlim owned = new(false);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int MonitorOwner()
    {
        lock (contended)
        {
            owned.Set();
            return Here.Block() + 1;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int MonitorWaiter()
    {
        // Alone (--only) it needs another owner.
        if (!owned.Wait(2000))
            App.Background("owner", () => { lock (contended) { owned.Set(); Here.Never.WaitOne(); } });
        owned.Wait();
        Here.Announce(Environment.StackTrace);
        lock (contended) return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int MonitorWait()
    {
        lock (signalled)
        {
            Here.Announce(Environment.StackTrace);
            Monitor.Wait(signalled);
            return 1;
        }
    }

    // Holds something that another thread has taken, once it is taken.
    static void Taken(Action take)
    {
        using var done = new ManualResetEventSlim(false);
        App.Background("owner", () => { take(); done.Set(); Here.Never.WaitOne(); });
        done.Wait();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int LockWaiter()
    {
        var gate = new Lock();
        Taken(gate.Enter);
        Here.Announce(Environment.StackTrace);
        lock (gate) return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int ReaderWriter()
    {
        var gate = new ReaderWriterLockSlim();
        Taken(gate.EnterReadLock);
        Here.Announce(Environment.StackTrace);
        gate.EnterWriteLock();
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Semaphore()
    {
        var semaphore = new SemaphoreSlim(0);
        Here.Announce(Environment.StackTrace);
        semaphore.Wait();
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int ManualResetEvent()
    {
        var e = new ManualResetEventSlim(false);
        Here.Announce(Environment.StackTrace);
        e.Wait();
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Sleep()
    {
        Here.Announce(Environment.StackTrace);
        Thread.Sleep(Timeout.Infinite);
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Join()
    {
        Thread other = App.Background("joined", () => Here.Never.WaitOne());
        Here.Announce(Environment.StackTrace);
        other.Join();
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int TaskWait()
    {
        Task task = new TaskCompletionSource().Task;
        Here.Announce(Environment.StackTrace);
        task.Wait();
        return 1;
    }
}
