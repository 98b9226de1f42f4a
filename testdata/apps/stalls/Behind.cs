// Work that waits behind a method that does not go on.
using System;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>The only reader of a channel waits for an answer that nobody gives.</summary>
static class Desks
{
    static readonly Channel<string> questions = Channel.CreateUnbounded<string>();
    static readonly TaskCompletionSource<string> answer = new();

    public static void Stand()
    {
        _ = Answers();
        App.Background("visitors", () =>
        {
            for (int i = 0; ; i++)
            {
                questions.Writer.TryWrite($"question {i}");
                Thread.Sleep(5);
            }
        });
        while (questions.Reader.Count < 150) Thread.Sleep(10);
    }

    static async Task Answers()
    {
        await foreach (string question in questions.Reader.ReadAllAsync())
            GC.KeepAlive(question + await Ask());
    }

    static async Task<string> Ask() => await answer.Task;
}

/// <summary>A gate for one.</summary>
static class Gate
{
    static readonly SemaphoreSlim gate = new(1);
    static readonly TaskCompletionSource bell = new();

    /// <summary>Who is inside waits for a bell that nobody rings.</summary>
    public static void Held()
    {
        _ = Hold();
        App.Background("visitors", () =>
        {
            while (true)
            {
                _ = Visit();
                Thread.Sleep(20);
            }
        });
    }

    static async Task Hold()
    {
        await gate.WaitAsync();
        try { await bell.Task; }
        finally { gate.Release(); }
    }

    static async Task Visit()
    {
        await gate.WaitAsync();
        try { await Task.Delay(1); }
        finally { gate.Release(); }
    }
}
