// Tasks, timers, and other threads that the runtime owns.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Scenarios;

static class Async
{
    static readonly List<object> alive = new();

    static async Task<int> Outer(Func<Task<int>> inner) => await Middle(inner) + 1;
    static async Task<int> Middle(Func<Task<int>> inner) => await inner() + 1;

    // Nothing was awaited yet: the state machines are on the caller's stack.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Blocked()
    {
        return Outer(BlockSynchronously).Result;

        static async Task<int> BlockSynchronously()
        {
            int n = Here.Block();
            await Task.Yield();
            return n + 1;
        }
    }

    // Resumed by the thread pool: the callers are continuations, not frames.
    public static int Resumed()
    {
        alive.Add(Outer(YieldAndBlock));
        return 0;

        static async Task<int> YieldAndBlock()
        {
            await Task.Yield();
            return Here.BlockAs("async-resumed") + 1;
        }
    }

    // Waits for ever without a thread.
    public static int Pending()
    {
        var never = new TaskCompletionSource<int>();
        alive.Add(never);
        alive.Add(Outer(() => never.Task));
        return 0;
    }

    public static int PoolWorker()
    {
        ThreadPool.UnsafeQueueUserWorkItem(static _ => BlockInPool(), null);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int BlockInPool() => Here.BlockAs("pool-worker") + 1;

    public static int TimerCallback()
    {
        alive.Add(new Timer(static _ => BlockInTimer(), null, 1, Timeout.Infinite));
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int BlockInTimer() => Here.BlockAs("timer") + 1;

    sealed class Finalized
    {
        ~Finalized() => Here.BlockAs("finalizer");
    }

    public static int Finalizer()
    {
        Drop();
        GC.Collect();
        return 0;

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Drop() => GC.KeepAlive(new Finalized());
    }

    // Async lambdas whose parameters are not those of the method around them.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Lambdas(int[] amounts)
    {
        Func<string, int, Task<int>> outer = async (string s, int k) =>
        {
            Func<long, Task<int>> inner = async n => await Generic((byte)n, k) + k;
            return await inner(s.Length);
        };
        return outer("lambda", amounts.Length).Result + 1;
    }

    // One in a generic method: its closure has the method's parameter.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Task<int> Generic<T>(T first, int second)
    {
        Func<char, Dictionary<T, int>, Task<int>> lambda = async (c, of) =>
        {
            int n = Here.Block();
            await Task.Yield();
            return n + of.Count + second;
        };
        return lambda('c', new() { [first] = 1 });
    }
}
