// Starts of threads, by three methods.
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Events;

static class Starts
{
    public static Lane[] Lanes() =>
        [new Lane("starts", App.Int("starts", 50), [new(6, Named), new(3, Unnamed), new(1, LongRunning)])];

    static Tally Started(string method) => Truth.Of("thread", "Events.Starts." + method, typeof(Thread));

    static readonly Tally named = Started(nameof(Named)), unnamed = Started(nameof(Unnamed)),
        longRunning = Started(nameof(LongRunning));

    static int ran;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Brief() => Interlocked.Increment(ref ran);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Named()
    {
        named.Add();
        var thread = new Thread(Brief) { Name = "mayfly", IsBackground = true };
        thread.Start();
        thread.Join();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Unnamed()
    {
        unnamed.Add();
        var thread = new Thread(Brief) { IsBackground = true };
        thread.Start();
        thread.Join();
    }

    /// <summary>A task that gets a thread of its own.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void LongRunning()
    {
        longRunning.Add();
        Task.Factory
            .StartNew(Brief, CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default)
            .Wait();
    }
}
