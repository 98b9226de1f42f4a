// Async methods before and after they were suspended, async iterators, and threads of the runtime.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Lines;

static class Asynchronous
{
    public static readonly Place[] Places =
    [
        new("async-before", () => Before().Result), // @async-before
        new("async-after", () => Begin(After), Elsewhere: true),
        new("async-twice", () => Begin(Twice), Elsewhere: true),
        new("async-value", () => OfValue().AsTask().Result), // @async-value
        new("async-value-2", () => Begin(async () => await OfValueAfter()), Elsewhere: true), // @async-value-2
        new("async-void", () => { Void(); return 1; }), // @async-void
        new("async-void-2", () => { VoidAfter(); return 1; }, Elsewhere: true),
        new("async-lambda", AsyncLambda),
        new("async-local", AsyncLocal),
        new("async-try", () => Begin(InTry), Elsewhere: true),
        new("async-catch", () => Begin(InCatch), Elsewhere: true),
        new("async-finally", () => Begin(InFinally), Elsewhere: true),
        new("async-using", () => Begin(InUsing), Elsewhere: true),
        new("async-foreach", () => Begin(InForeach), Elsewhere: true),
        new("async-loop", () => Begin(InLoop), Elsewhere: true),
        new("async-generic", () => Begin(() => OfType("s")), Elsewhere: true),
        new("async-configured", () => { Task.Run(Configured); return 1; }, Elsewhere: true),
        new("async-caller", BeginCaller, Elsewhere: true),
        new("thread", OnThread, Elsewhere: true),
        new("pool", () => { ThreadPool.QueueUserWorkItem(_ => Here.Stop("pool")); return 1; }, // @pool
            Elsewhere: true),
        new("task-run", () => { Task.Run(() => Here.Stop("task-run")); return 1; }, Elsewhere: true), // @task-run
        new("timer", OnTimer, Elsewhere: true),
        new("continuation", Continuation, Elsewhere: true),
        new("parallel-for", ParallelFor),
        new("lazy", OfLazy),
    ];

    static int Begin(Func<Task> f)
    {
        f();
        return 1;
    }

    static Timer kept;

    static async Task<int> Before()
    {
        int n = 1;
        n += Here.Stop(); // @async-before
        await Task.Yield();
        return n;
    }

    static async Task After()
    {
        int n = 1;
        await Task.Yield();
        n += Here.Stop("async-after"); // @async-after
        await Task.Yield();
    }

    static async Task Twice()
    {
        await Task.Yield();
        int n = 1;
        await Task.Delay(1);
        n++;
        await Task.Yield();
        Here.Stop("async-twice"); // @async-twice
    }

    static async ValueTask<int> OfValue()
    {
        int n = Here.Stop() + 1; // @async-value
        await Task.Yield();
        return n;
    }

    static async ValueTask<int> OfValueAfter()
    {
        await Task.Yield();
        return Here.Stop("async-value-2") + 1; // @async-value-2
    }

    static async void Void()
    {
        Here.Stop(); // @async-void
        await Task.Yield();
    }

    static async void VoidAfter()
    {
        await Task.Yield();
        Here.Stop("async-void-2"); // @async-void-2
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AsyncLambda()
    {
        Func<int, Task<int>> f = async n =>
        {
            n++;
            n += Here.Stop(); // @async-lambda
            await Task.Yield();
            return n;
        };
        return f(1).Result + 1; // @async-lambda
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AsyncLocal()
    {
        return Local(2).Result + 1; // @async-local

        static async Task<int> Local(int n)
        {
            n += Here.Stop(); // @async-local
            await Task.Yield();
            return n;
        }
    }

    static async Task InTry()
    {
        try
        {
            await Task.Yield();
            Here.Stop("async-try"); // @async-try
        }
        finally
        {
            await Task.Yield();
        }
    }

    static async Task InCatch()
    {
        try
        {
            await Task.Yield();
            throw new InvalidOperationException();
        }
        catch (InvalidOperationException e)
        {
            await Task.Yield();
            Here.Stop("async-catch"); // @async-catch
            Console.Error.WriteLine(e);
        }
    }

    static async Task InFinally()
    {
        int n = 0;
        try
        {
            await Task.Yield();
            n++;
        }
        finally
        {
            Here.Stop("async-finally"); // @async-finally
        }
    }

    sealed class Resource : IAsyncDisposable
    {
        public async ValueTask DisposeAsync()
        {
            await Task.Yield();
            Here.Stop("async-using"); // @async-using
        }
    }

    static async Task InUsing()
    {
        await using var r = new Resource();
        await Task.Yield();
    }

    static async IAsyncEnumerable<int> Numbers()
    {
        yield return 1;
        await Task.Yield();
        int n = 2;
        n += Here.Stop("async-foreach"); // @async-foreach
        yield return n;
    }

    static async Task InForeach()
    {
        int sum = 0;
        await foreach (int n in Numbers())
        {
            sum += n;
        }
    }

    static async Task InLoop()
    {
        for (int i = 0; i < 100; i++)
        {
            await Task.Yield();
            if (i == 99)
                Here.Stop("async-loop"); // @async-loop
        }
    }

    static async Task OfType<T>(T value)
    {
        await Task.Yield();
        string s = value.ToString();
        Here.Stop("async-generic"); // @async-generic
    }

    static async Task Configured()
    {
        await Task.Delay(1).ConfigureAwait(false);
        Here.Stop("async-configured"); // @async-configured
    }

    // It ends once it is awaited: what awaits a task that has ended goes on at once.
    static readonly TaskCompletionSource awaited = new(TaskCreationOptions.RunContinuationsAsynchronously);

    static int BeginCaller()
    {
        Begin(Caller);
        awaited.SetResult();
        return 1;
    }

    static async Task<int> Called()
    {
        await awaited.Task;
        return 1;
    } // @async-caller

    // What awaits is called by what ends.
    static async Task Caller()
    {
        int n = await Called();
        n += Here.Stop("async-caller"); // @async-caller
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int OnThread()
    {
        var t = new Thread(o => Here.Stop((string)o), 1 << 20) { IsBackground = true }; // @thread
        t.Start("thread");
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int OnTimer()
    {
        kept = new Timer(
            _ => Here.Stop("timer"), // @timer
            null, 1, Timeout.Infinite);
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Continuation()
    {
        Task.Delay(1).ContinueWith(_ =>
        {
            Here.Stop("continuation"); // @continuation
        });
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ParallelFor()
    {
        var one = new ParallelOptions { MaxDegreeOfParallelism = 1 };
        Parallel.For(0, 1, one, TaskScheduler.Default is null ? null : i => Here.Stop("parallel-for")); // @parallel-for
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int OfLazy()
    {
        var l = new Lazy<int>(() => Here.Stop()); // @lazy
        return l.Value + 1; // @lazy
    }
}
