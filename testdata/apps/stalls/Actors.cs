// Two departments, each of which handles its letters one after the other, so that no state needs a lock.
using System;
using System.Collections.Generic;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>A department answers letters, and may ask another department first.</summary>
abstract class Department
{
    public sealed record Letter(bool Odd, TaskCompletionSource<int> Answer);

    readonly Channel<Letter> letters = Channel.CreateUnbounded<Letter>();

    public Department Other;

    public async Task<int> AskAsync(bool odd)
    {
        var letter = new Letter(odd, new(TaskCreationOptions.RunContinuationsAsynchronously));
        letters.Writer.TryWrite(letter);
        return await letter.Answer.Task;
    }

    public async Task WorkAsync()
    {
        await foreach (Letter letter in letters.Reader.ReadAllAsync()) await HandleAsync(letter);
    }

    protected abstract Task HandleAsync(Letter letter);
}

sealed class Stock : Department
{
    protected override async Task HandleAsync(Letter letter)
    {
        if (letter.Odd) letter.Answer.SetResult(1 + await Other.AskAsync(true));
        else letter.Answer.SetResult(0);
    }
}

sealed class Carriers : Department
{
    protected override async Task HandleAsync(Letter letter)
    {
        if (letter.Odd) letter.Answer.SetResult(1 + await Other.AskAsync(false));
        else letter.Answer.SetResult(0);
    }
}

static class Actors
{
    static readonly Stock stock = new();
    static readonly Carriers carriers = new() { Other = stock };
    static readonly Task[] asked = new Task[8];

    /// <summary>Each department waits for the answer of the other department.</summary>
    public static void Crossed() => Begin(true);

    /// <summary>Healthy: letters are answered, with pauses.</summary>
    public static void Prompt() => Begin(false);

    static void Begin(bool odd)
    {
        stock.Other = carriers;
        _ = stock.WorkAsync();
        _ = carriers.WorkAsync();
        for (int i = 0; i < asked.Length; i++) asked[i] = OrderAsync(odd);
    }

    static async Task OrderAsync(bool odd)
    {
        while (true)
        {
            GC.KeepAlive(await stock.AskAsync(odd));
            await Task.Delay(20);
        }
    }
}

/// <summary>An own queue with async readers.</summary>
sealed class Belt
{
    readonly Queue<int> parcels = new();
    readonly Queue<TaskCompletionSource<int>> readers = new();

    public void Put(int parcel)
    {
        TaskCompletionSource<int> reader;
        lock (parcels)
        {
            if (!readers.TryDequeue(out reader)) parcels.Enqueue(parcel);
        }
        reader?.SetResult(parcel);
    }

    public async Task<int> TakeAsync()
    {
        var reader = new TaskCompletionSource<int>(TaskCreationOptions.RunContinuationsAsynchronously);
        lock (parcels)
        {
            if (parcels.TryDequeue(out int parcel)) return parcel;
            readers.Enqueue(reader);
        }
        return await reader.Task;
    }
}

/// <summary>Healthy: workers along three belts, without work.</summary>
static class Belts
{
    static readonly Belt[] belts = [new(), new(), new()];
    static readonly List<Task> workers = [];

    public static void Idle()
    {
        for (int i = 0; i < 12; i++)
        {
            workers.Add(CarryAsync(belts[0], belts[1]));
            workers.Add(CarryAsync(belts[1], belts[2]));
            workers.Add(DropAsync(belts[2]));
        }
        belts[0].Put(1);
    }

    static async Task CarryAsync(Belt from, Belt to)
    {
        while (true) to.Put(await from.TakeAsync());
    }

    static async Task DropAsync(Belt from)
    {
        while (true) GC.KeepAlive(await from.TakeAsync());
    }
}
