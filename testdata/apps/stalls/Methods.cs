using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>Async methods that end, or do not.</summary>
static class Methods
{
    static long ended;

    /// <summary>
    /// Many methods wait, and one after another ends. With --collect the collector moves them now and then.
    /// </summary>
    public static void Ends()
    {
        var parcels = new TaskCompletionSource[2_000];
        var sent = new Task[parcels.Length];
        for (int i = 0; i < parcels.Length; i++)
        {
            parcels[i] = new();
            sent[i] = Send(parcels[i].Task);
        }
        bool collects = App.Flag("collect");
        App.Background("carrier", () =>
        {
            for (int i = 0; i < parcels.Length; i++)
            {
                Thread.Sleep(50);
                parcels[i].SetResult();
                if (collects && i % 10 == 0) GC.Collect(2, GCCollectionMode.Forced, blocking: true, compacting: true);
            }
        });
        App.Answer = _ => [$"ENDED {Volatile.Read(ref ended)}"];
        GC.KeepAlive(sent);
    }

    static async Task Send(Task parcel)
    {
        await parcel;
        Interlocked.Increment(ref ended);
    }

    static readonly List<Task> failed = [];

    /// <summary>
    /// Three async methods fail, and nobody looks; one fails and is awaited; a task of Task.Run fails; one is canceled.
    /// </summary>
    public static void Faults()
    {
        for (int i = 0; i < 3; i++) failed.Add(Consume());
        failed.Add(Deliver());
        failed.Add(Task.Run(Count));
        failed.Add(Stop());
        try { failed[3].Wait(); }
        catch (AggregateException) { }
        while (!failed.TrueForAll(t => t.IsCompleted)) Thread.Sleep(1);
    }

    static async Task Consume()
    {
        await Task.Yield();
        await Take();
    }

    static async Task Take()
    {
        await Task.Yield();
        throw new InvalidOperationException("the queue is closed");
    }

    static async Task Deliver()
    {
        await Task.Yield();
        throw new TimeoutException("nobody is at home");
    }

    static void Count() => throw new ArgumentException("not a number", "count");

    static async Task Stop()
    {
        await Task.Yield();
        throw new OperationCanceledException();
    }

    static readonly Channel<int> letters = Channel.CreateBounded<int>(8);
    static Task consumer;

    /// <summary>More and more methods wait to write to a full channel: its reader has failed.</summary>
    public static void Outbox()
    {
        consumer = Carry();
        Write();
    }

    /// <summary>Likewise: its reader waits for what nobody does.</summary>
    public static void OutboxStuck()
    {
        consumer = Queue();
        Write();
    }

    /// <summary>The only reader of a full channel writes to the channel.</summary>
    public static void OwnChannel()
    {
        consumer = Split();
        for (int i = 0; i < 3; i++) _ = TakeIn();
    }

    static async Task Split()
    {
        await foreach (int letter in letters.Reader.ReadAllAsync())
        {
            for (int i = 0; i < 3; i++) await letters.Writer.WriteAsync(letter);
        }
    }

    static async Task TakeIn()
    {
        while (true) await letters.Writer.WriteAsync(1);
    }

    static void Write() => App.Background("letters", () =>
    {
        for (int i = 0; ; i++, Thread.Sleep(20)) _ = Post(i);
    });

    static async Task Post(int letter) => await letters.Writer.WriteAsync(letter);

    static async Task Carry()
    {
        await foreach (int letter in letters.Reader.ReadAllAsync())
        {
            if (letter == 3) throw new InvalidOperationException("no such street");
        }
    }

    static async Task Queue()
    {
        await foreach (int letter in letters.Reader.ReadAllAsync()) await Sign();
    }

    static async Task Sign() => await new TaskCompletionSource().Task;
}
