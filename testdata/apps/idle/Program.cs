// Blocked threads with stacks of ordinary depth, for benchmarks.
//
//   --threads N   default 16; their depths go from 20 to 60 frames
//   --pool N      blocked thread-pool workers, default 4
//   --resting     idle threads of the runtime's own: see Resting.cs
//   --heirs       threads without a name of their own: see Heirs.cs
//   --leaderless  the main thread has ended, and the process goes on
//   --heap N      megabytes of objects that stay alive, default 0
//   --stdin, --max-seconds: see App.cs
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Idle;

static class Program
{
    static readonly ManualResetEvent never = new(false);
    static readonly List<byte[]> heap = new();
    static int blocked;

    static void Main(string[] args)
    {
        App.Start(args);
        int threads = App.Int("threads", 16), pool = App.Int("pool", 4);
        for (int i = App.Int("heap", 0); i > 0; i--)
        {
            var block = new byte[1 << 20];
            Random.Shared.NextBytes(block);
            heap.Add(block);
        }
        for (int i = 0; i < threads; i++)
        {
            int depth = 20 + i * 7 % 41;
            App.Background($"idle-{i}", () => Descend(depth, ""), stackBytes: 1 << 20);
        }
        ThreadPool.SetMinThreads(pool + Resting.Workers, 1);
        for (int i = 0; i < pool; i++) ThreadPool.UnsafeQueueUserWorkItem(static _ => Descend(10, 1), null);
        while (Volatile.Read(ref blocked) < threads + pool) Thread.Sleep(1);
        if (App.Flag("resting")) Resting.Start();
        if (App.Flag("heirs")) Heirs.Start();
        Kernel.AwaitBlocked("idle-", ".NET TP Worker");
        if (App.Flag("leaderless"))
        {
            App.Background("last", End);
            syscall(60, 0); // exit(2) of x86-64: of this thread, not of the process
        }
        End();
    }

    static void End()
    {
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    [DllImport("libc")] static extern nint syscall(nint number, nint argument);

    // Generic and plain methods in turn, as in real programs.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Descend<T>(int depth, T value) =>
        depth > 1 ? Step(depth - 1, value.ToString()) + EqualityComparer<T>.Default.GetHashCode(value) : Block() + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Step(int depth, string value) =>
        depth > 1 ? Descend(depth - 1, value) + value.Length : Block() + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Block()
    {
        Interlocked.Increment(ref blocked);
        never.WaitOne();
        return 1;
    }
}
