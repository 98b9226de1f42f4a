using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Shop;

/// <summary>Nothing is wrong with this.</summary>
static class Fine
{
    static readonly object gate = new();
    static int total;

    /// <summary>A little of everything: locks that are held briefly, garbage, waits, the pool.</summary>
    public static void Work()
    {
        for (int i = 0; i < 3; i++)
        {
            int n = i;
            App.Background($"work-{i}", () =>
            {
                while (true)
                {
                    lock (gate) total += Describe(n).Length;
                    Thread.Sleep(5);
                }
            });
        }
        _ = Tick();
    }

    static async Task Tick()
    {
        while (true)
        {
            await Task.Delay(10);
            await Task.Run(() => Describe(1));
        }
    }

    static string Describe(int n) => string.Join(',', Enumerable.Range(n, 100).Select(i => $"order {i}"));

    /// <summary>Main returns, and this thread works on.</summary>
    public static void Worker() => new Thread(() =>
    {
        while (true)
        {
            lock (gate) total += Describe(1).Length;
            Thread.Sleep(5);
        }
    }) { Name = "worker" }.Start();

    static long returned;

    /// <summary>Native memory is taken and given back, again and again, more of it each time, then little again.</summary>
    public static unsafe void Buffers()
    {
        App.Background("buffers", () =>
        {
            for (; ; Interlocked.Increment(ref returned))
            {
                for (int i = 1; i <= 16; i++)
                {
                    nuint bytes = (nuint)i << 20;
                    void* at = NativeMemory.Alloc(bytes);
                    NativeMemory.Fill(at, bytes, 1);
                    Thread.Sleep(5);
                    NativeMemory.Free(at);
                }
            }
        });
        App.Answer = _ => [$"RETURNED {Volatile.Read(ref returned)}"];
    }

    /// <summary>All CPUs are used on purpose, in many methods.</summary>
    public static void Batch()
    {
        for (int i = 0; i < Environment.ProcessorCount; i++)
        {
            App.Background($"batch-{i}", () =>
            {
                var random = new Random(1);
                while (true) total += Sorted(random) + Words(random) + Sums(random);
            });
        }
    }

    static int Sorted(Random random)
    {
        var list = Enumerable.Range(0, 20_000).Select(_ => random.Next()).ToList();
        list.Sort();
        return list[0];
    }

    static int Words(Random random)
    {
        var counts = new Dictionary<string, int>();
        for (int i = 0; i < 20_000; i++)
        {
            string word = "word" + random.Next(1000);
            counts[word] = counts.GetValueOrDefault(word) + 1;
        }
        return counts.Count;
    }

    static int Sums(Random random)
    {
        var text = new StringBuilder();
        for (int i = 0; i < 20_000; i++) text.Append(random.NextDouble());
        return text.Length;
    }

    /// <summary>Workers of the pool wait for work of their own, as many as there may be, and nothing is queued.</summary>
    public static void Consumers()
    {
        ThreadPool.SetMinThreads(8, 1);
        var queue = new BlockingCollection<int>();
        for (int i = 0; i < 8; i++)
        {
            Task.Run(() => { foreach (int n in queue.GetConsumingEnumerable()) total += n; });
        }
        App.Background("producer", () => { while (true) { queue.Add(1); Thread.Sleep(50); } });
    }

    /// <summary>Some exceptions, now and then.</summary>
    public static void Errors() => App.Background("imports", () =>
    {
        while (true)
        {
            for (int i = 0; i < 20; i++)
            {
                try { throw new InvalidOperationException(); }
                catch (InvalidOperationException) { total++; }
            }
            Thread.Sleep(200);
        }
    });

    /// <summary>
    /// Async methods wait for permits for long: one that is a signal, which nobody gives; one that a method has that has
    /// not ended; one that an iterator has whose consumer takes its time; one that a method hands over unless it fails.
    /// </summary>
    public static void Permits()
    {
        for (int i = 0; i < 3; i++) { _ = Signalled(); holders.Add(Long()); leases.Add(Borrow()); }
        holders.Add(Consume());
        Thread.Sleep(100);
        _ = Read().GetAsyncEnumerator().MoveNextAsync().AsTask();
    }

    static readonly SemaphoreSlim signal = new(0), longer = new(1), reading = new(1);

    // Nothing else keeps a method that awaits an endless delay: if it is collected, its permit is lost.
    static readonly List<Task> holders = [];

    static async Task Signalled() { await signal.WaitAsync(); total++; }

    static readonly List<Task<Lease>> leases = [];
    static readonly SemaphoreSlim leasing = new(1);

    sealed class Lease : IDisposable
    {
        public void Dispose() => leasing.Release();
    }

    static async Task<Lease> Borrow()
    {
        await leasing.WaitAsync();
        try
        {
            await Task.Yield();
            return new Lease();
        }
        catch
        {
            leasing.Release();
            throw;
        }
    }

    static async Task Long()
    {
        await longer.WaitAsync();
        try { await Task.Delay(Timeout.Infinite); }
        finally { longer.Release(); }
    }

    static async IAsyncEnumerable<int> Read()
    {
        await reading.WaitAsync();
        try
        {
            for (int i = 0; ; i++) { await Task.Yield(); yield return i; }
        }
        finally { reading.Release(); }
    }

    static async Task Consume() { await foreach (int n in Read()) await Task.Delay(Timeout.Infinite); }

    /// <summary>Threads ask for messages, and an exception says that there is none.</summary>
    public static void Messages()
    {
        for (int i = 0; i < 3; i++)
        {
            App.Background($"messages-{i}", () =>
            {
                while (true)
                {
                    try { Receive(); }
                    catch (TimeoutException) { total++; }
                }
            });
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Receive()
    {
        Thread.Sleep(50);
        throw new TimeoutException("no message");
    }

    static readonly TaskCompletionSource stop = new();

    /// <summary>Async methods wait for one source: a gate that opens at the end.</summary>
    public static void Gate()
    {
        for (int i = 0; i < 12; i++) _ = Stopped();
    }

    static async Task Stopped()
    {
        await stop.Task;
        total++;
    }

    static readonly Barrier step = new(4);

    /// <summary>Three threads wait for the fourth, which takes its time elsewhere.</summary>
    public static void Steps()
    {
        for (int i = 0; i < 4; i++)
        {
            int n = i;
            App.Background($"step-{i}", () =>
            {
                while (true)
                {
                    if (n == 0) Slow.Solve();
                    step.SignalAndWait();
                }
            });
        }
    }

    static class Slow
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Solve() => Thread.Sleep(TimeSpan.FromMinutes(1));
    }

    static readonly Channel<int> letters = Channel.CreateBounded<int>(4);

    /// <summary>Async methods wait for room in a channel, and the reader takes its time with each item.</summary>
    public static void SlowReader()
    {
        _ = Read(letters.Reader);
        for (int i = 0; i < 5; i++) _ = Write(i);
    }

    static async Task Read(ChannelReader<int> from)
    {
        await foreach (int letter in from.ReadAllAsync()) await Task.Delay(TimeSpan.FromMinutes(1));
    }

    static async Task Write(int letter)
    {
        while (true) await letters.Writer.WriteAsync(letter);
    }
}
