// Storm workers about threads, locks and calls.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Scenarios;

static class StormThreads
{
    /// <summary>Threads that do almost nothing.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Microseconds()
    {
        int sum = 0;
        var threads = new Thread[8];
        for (int i = 0; i < threads.Length; i++)
        {
            threads[i] = new Thread(() => Interlocked.Increment(ref sum), 64 << 10) { IsBackground = true };
            threads[i].Start();
        }
        foreach (Thread t in threads) t.Join();
        Interlocked.Add(ref Counts.Threads, threads.Length);
        Thread.Sleep(1);
        return sum;
    }

    static int workRounds;

    /// <summary>Threads that live for one piece of work, of 1 to 3 ms, now and then of 30.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Work()
    {
        int round = Interlocked.Increment(ref workRounds);
        long right = 0;
        var threads = new Thread[8];
        for (int i = 0; i < threads.Length; i++)
        {
            int pieces = i == 0 && round % 4 == 0 ? 300 : 10 + (i * 7 + round) % 20;
            threads[i] = new Thread(() => Interlocked.Add(ref right, Piece(pieces)))
            {
                IsBackground = true, Name = "mayfly",
            };
            threads[i].Start();
        }
        foreach (Thread t in threads) t.Join();
        Interlocked.Add(ref Counts.Threads, threads.Length);
        Thread.Sleep(10);
        return right;
    }

    // A tenth of a millisecond each. Returns 1.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Piece(int pieces)
    {
        ulong n = 0, steps = (ulong)pieces * 100_000;
        for (ulong i = 0; i < steps; i++) n += i;
        return n == steps * (steps - 1) / 2 ? 1 : 0;
    }

    /// <summary>Work items, timers and loops of the thread pool.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Pool()
    {
        long sum = 0;
        using var done = new CountdownEvent(64);
        for (int i = 0; i < 64; i++)
        {
            ThreadPool.QueueUserWorkItem(n => { Interlocked.Add(ref sum, n); done.Signal(); }, i, preferLocal: false);
        }
        Parallel.For(0, 64, new ParallelOptions { MaxDegreeOfParallelism = 3 }, n => Interlocked.Add(ref sum, n));
        done.Wait();
        Task.WhenAll(
            Enumerable.Range(0, 8).Select(async n => { await Task.Delay(1); Interlocked.Add(ref sum, n); })).Wait();
        return sum;
    }

    static readonly object monitor = new();
    static readonly Lock @lock = new();
    static readonly ReaderWriterLockSlim readerWriter = new();
    static readonly SemaphoreSlim semaphore = new(1);
    static SpinLock spin = new(false);
    static long inMonitor, inLock, inReaderWriter, inSemaphore, inSpin;

    /// <summary>Locks that several threads want at once.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Locks()
    {
        long mine = 0;
        for (int i = 0; i < 200; i++)
        {
            lock (monitor) mine += Alone(ref inMonitor);
            lock (@lock) mine += Alone(ref inLock);
            semaphore.Wait();
            mine += Alone(ref inSemaphore);
            semaphore.Release();
            bool taken = false;
            spin.Enter(ref taken);
            mine += Alone(ref inSpin);
            spin.Exit();
            readerWriter.EnterWriteLock();
            mine += Alone(ref inReaderWriter);
            readerWriter.ExitWriteLock();
        }
        return mine;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Alone(ref long inside)
    {
        long n = ++inside;
        if (n % 50 == 0) Thread.Yield();
        return --inside == n - 1 && n == 1 ? 1 : 0;
    }

    abstract class Shape { [MethodImpl(MethodImplOptions.NoInlining)] public virtual int Size<T>(T x) => 1; }
    sealed class Round : Shape
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public override int Size<T>(T x) => typeof(T).IsValueType ? 2 : 3;
    }
    sealed class Square : Shape
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public override int Size<T>(T x) => base.Size(x) + 3;
    }
    interface IMeasure<in T> { int Measure(T x); static abstract int Unit { get; } }
    sealed class Meter : IMeasure<object> { public int Measure(object x) => 1; public static int Unit => 1; }

    static class Once<T>
    {
        public static readonly int Length = Count();
        [MethodImpl(MethodImplOptions.NoInlining)] static int Count() => typeof(T).Name.Length;
    }

    /// <summary>Generic virtual methods, variance, static constructors of generic types.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long GenericCalls()
    {
        Shape[] shapes = [new Round(), new Square()];
        IMeasure<string> measure = new Meter();
        long sum = 0;
        for (int i = 0; i < 1000; i++)
        {
            Shape s = shapes[i & 1];
            sum += s.Size(i) + s.Size("text") + s.Size((i, 'c')) + s.Size(shapes)
                + measure.Measure("text") + UnitOf<Meter>();
        }
        return sum + Once<int>.Length + Once<string>.Length + Once<List<string>>.Length;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int UnitOf<T>() where T : IMeasure<object> => T.Unit;

    [MethodImpl(MethodImplOptions.NoInlining)] static int Open(int n) => n;
    [MethodImpl(MethodImplOptions.NoInlining)] static int Extended(object o, int n) => n + 1;
    sealed class Closed { [MethodImpl(MethodImplOptions.NoInlining)] public int Call(int n) => n + 2; }

    /// <summary>Delegates of every kind; a multicast one returns what its last target does.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Delegates()
    {
        var closed = new Closed();
        Func<int, int> open = Open, instance = closed.Call, all = open + instance;
        var unbound = (Func<Closed, int, int>)Delegate.CreateDelegate(
            typeof(Func<Closed, int, int>), typeof(Closed).GetMethod("Call"));
        var extended = (Func<int, int>)Delegate.CreateDelegate(
            typeof(Func<int, int>), closed, ((Func<object, int, int>)Extended).Method);
        long sum = 0;
        for (int i = 0; i < 1000; i++) sum += open(0) + instance(0) + all(0) + unbound(closed, 0) + extended(0);
        return sum;
    }
}
