// A thread pool whose threads are all busy, with work that waits for one.
using System;
using System.Threading;
using System.Threading.Tasks;

namespace Tasks;

static class Queued
{
    const int Threads = 5;

    static readonly ManualResetEventSlim never = new();

    /// <summary>Blocks all threads, and queues so many items of each of three kinds, one from within the pool.</summary>
    public static void Fill(int items)
    {
        ThreadPool.SetMinThreads(Threads, Threads);
        ThreadPool.SetMaxThreads(Threads, Threads);
        using var started = new CountdownEvent(Threads);
        using var others = new CountdownEvent(Threads - 1);
        for (int i = 0; i < Threads; i++)
        {
            bool first = i == 0;
            ThreadPool.QueueUserWorkItem(_ =>
            {
                if (!first) others.Signal();
                else
                {
                    others.Wait(); // nobody takes what is queued here
                    for (int k = 0; k < items; k++) Task.Run(() => { });
                }
                started.Signal();
                never.Wait();
            });
        }
        started.Wait();
        for (int k = 0; k < items; k++) ThreadPool.QueueUserWorkItem(_ => { });
        timers = [
            new(_ => { }, null, TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan),
            new(_ => GC.KeepAlive(items), null, TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan),
            new(Holder<string>.Tick, null, TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan),
            new(new Holder<string>().Lambda(), null, TimeSpan.FromHours(1), Timeout.InfiniteTimeSpan),
        ];
        for (int k = 0; k < items; k++) _ = Yields();
    }

    static Timer[] timers;

    sealed class Holder<T>
    {
        public static void Tick(object state) { }
        public TimerCallback Lambda() => _ => GC.KeepAlive(this);
    }

    static async Task Yields()
    {
        await Task.Yield();
        never.Wait();
    }
}
