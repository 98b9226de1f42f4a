// Chains whose inner method waits, each for something else.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.IO.Pipes;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Tasks;

static class Suspended
{
    static readonly ConcurrentQueue<string> truths = new();

    /// <summary>What must not be collected.</summary>
    static readonly ConcurrentQueue<object> kept = new();

    static readonly SemaphoreSlim semaphore = new(0);
    static readonly Channel<string> channel = Channel.CreateUnbounded<string>();
    static readonly TaskCompletionSource<int> source = new(TaskCreationOptions.RunContinuationsAsynchronously);
    static readonly ManualResetEventSlim never = new();

    /// <summary>Inner methods by what they wait for, as clrsnap calls it.</summary>
    static readonly Dictionary<string, Func<string, Task>> leaves = new()
    {
        ["timer"] = OfDelay,
        ["timer periodic"] = OfPeriodic,
        ["endless"] = OfEndless,
        ["semaphore"] = OfSemaphore,
        ["channel"] = OfChannel,
        ["socket"] = OfSocket,
        ["file"] = OfFile,
        ["TaskCompletionSource"] = OfSource,
        ["task"] = OfTask,
        ["task run"] = OfRun,
        ["WhenAll"] = OfAll,
        ["WhenAny"] = OfAny,
        ["WaitAsync"] = OfWait,
    };

    /// <summary>Starts the chains, so many of each, and waits until all have gone down to their inner method.</summary>
    public static void Fill(IEnumerable<string[]> chains, int times)
    {
        if (App.Flag("ended")) kept.Enqueue(Ended());
        int n = 0, i = 0;
        Func<string, Task>[] list = [.. leaves.Values];
        string[] kinds = [.. leaves.Keys];
        foreach (string[] levels in chains)
        {
            int which = i++ % list.Length;
            for (int k = 0; k < times; k++, n++) kept.Enqueue(Root(new Plan(levels, () => list[which](kinds[which]))));
        }
        while (truths.Count < n) Thread.Sleep(1);
        Kernel.AwaitBlocked(".NET TP Worker"); // they have come to what they are about to wait for
    }

    // An iterator that has ended is in no chain, though its objects are still there.
    static IAsyncEnumerator<int> Ended()
    {
        IAsyncEnumerator<int> e = Elements().GetAsyncEnumerator();
        while (e.MoveNextAsync().AsTask().Result) { }
        return e;

        static async IAsyncEnumerable<int> Elements() { await Task.Yield(); yield return 1; }
    }

    /// <summary>Waits for a permit in each way that there is.</summary>
    public static void Permits()
    {
        kept.Enqueue(Plain());
        kept.Enqueue(WithToken(new CancellationTokenSource().Token));
        kept.Enqueue(ForSomeTime());

        static async Task Plain() => await semaphore.WaitAsync();
        static async Task WithToken(CancellationToken token) { kept.Enqueue(token); await semaphore.WaitAsync(token); }
        static async Task ForSomeTime() => await semaphore.WaitAsync(TimeSpan.FromHours(3));
    }

    /// <summary>Waits for 10 ms, again and again, beside many objects, which take much longer to walk.</summary>
    public static void Tick()
    {
        var objects = new object[1_000_000];
        for (int i = 0; i < objects.Length; i++) objects[i] = new string('x', i % 8);
        kept.Enqueue(objects);
        for (int i = 0; i < 20; i++) kept.Enqueue(Ticks());

        static async Task Ticks()
        {
            while (true) await Task.Delay(10);
        }
    }

    public static IEnumerable<string> Truths() => truths;

    static async Task Root(Plan p) { Levels.Mark("Suspended.Root"); await p.Next(); }

    static void Note(string kind) => truths.Enqueue($"{kind}\t{Levels.Path}");

    static async Task OfDelay(string kind) { Levels.Mark("Suspended.OfDelay"); Note(kind); await Task.Delay(TimeSpan.FromHours(1)); }

    static async Task OfPeriodic(string kind)
    {
        Levels.Mark("Suspended.OfPeriodic", below: 1); Note(kind);
        await new PeriodicTimer(TimeSpan.FromHours(2)).WaitForNextTickAsync();
    }

    // No timer keeps the promise: without kept, the collector would take it, and the methods that wait for it.
    static async Task OfEndless(string kind)
    {
        Task endless = Task.Delay(-1);
        kept.Enqueue(endless);
        Levels.Mark("Suspended.OfEndless", below: 1); Note(kind);
        await endless;
    }

    static async Task OfSemaphore(string kind) { Levels.Mark("Suspended.OfSemaphore"); Note(kind); await semaphore.WaitAsync(); }

    static async Task OfChannel(string kind)
    {
        Levels.Mark("Suspended.OfChannel"); Note(kind); await channel.Reader.ReadAsync();
    }

    static async Task OfSocket(string kind)
    {
        using var listener = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listener.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listener.Listen();
        using var client = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        await client.ConnectAsync(listener.LocalEndPoint);
        var buffer = new byte[16];
        Levels.Mark("Suspended.OfSocket"); Note(kind); await client.ReceiveAsync(buffer, SocketFlags.None);
    }

    // A file that nobody writes to: an end of a pipe, opened once more so that reads block.
    static async Task OfFile(string kind)
    {
        var pipe = new AnonymousPipeServerStream(PipeDirection.In);
        kept.Enqueue(pipe);
        string path = $"/proc/self/fd/{pipe.SafePipeHandle.DangerousGetHandle()}";
        var file = new FileStream(path, FileMode.Open, FileAccess.Read, FileShare.ReadWrite, 0, useAsync: true);
        var buffer = new byte[16];
        Levels.Mark("Suspended.OfFile"); Note(kind); await file.ReadAsync(buffer.AsMemory());
    }

    static async Task OfSource(string kind) { Levels.Mark("Suspended.OfSource"); Note(kind); await source.Task; }

    static async Task OfTask(string kind)
    {
        Levels.Mark("Suspended.OfTask"); Note(kind); await Task.Factory.StartNew(() => never.Wait(), TaskCreationOptions.LongRunning);
    }

    // The async method that runs has not been suspended.
    static async Task OfRun(string kind)
    {
        Levels.Mark("Suspended.OfRun"); Note(kind); await Task.Run(async () => { never.Wait(); await Task.Yield(); });
    }

    static async Task OfAll(string kind) { Levels.Mark("Suspended.OfAll"); Note(kind); await Task.WhenAll(source.Task, Task.Delay(-1)); }
    static async Task OfAny(string kind) { Levels.Mark("Suspended.OfAny"); Note(kind); await Task.WhenAny(source.Task, Task.Delay(-1)); }

    static async Task OfWait(string kind)
    {
        Levels.Mark("Suspended.OfWait"); Note(kind); await source.Task.WaitAsync(TimeSpan.FromHours(4));
    }
}
