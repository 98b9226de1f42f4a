using System;
using System.Collections.Generic;
using System.IO.Pipelines;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Oddities;

/// <summary>Services that are well, and look odd.</summary>
static class Healthy
{
    static readonly List<Task> work = [];

    sealed class Entry(Entry next, int size)
    {
        public Entry Next = next;
        public readonly byte[] Data = new byte[size];
    }

    static Entry newest;

    /// <summary>A linked list of the last half minute, in large tides: its oldest part goes now and then.</summary>
    public static void Tide() => App.Background("tide", () =>
    {
        int length = 0;
        for (int n = 0; ; n++)
        {
            newest = new Entry(newest, 2000);
            if (++length == 3000)
            {
                Entry middle = newest;
                for (length = 1; length < 300; length++) middle = middle.Next;
                middle.Next = null;
            }
            Done.One();
            if (n % 3 == 0) Thread.Sleep(2);
        }
    });

    /// <summary>Threads meet at a barrier, and the slowest takes fifteen seconds for its part.</summary>
    public static void Lockstep()
    {
        var barrier = new Barrier(5);
        for (int i = 0; i < 5; i++)
        {
            int part = i;
            App.Background($"part-{i}", () =>
            {
                while (true)
                {
                    if (part == 0) Slow();
                    barrier.SignalAndWait();
                    Done.One();
                }
            });
        }
    }

    static void Slow()
    {
        long until = Environment.TickCount64 + 15_000, sum = 0;
        while (Environment.TickCount64 < until)
        {
            for (int i = 0; i < 100_000; i++) sum += i * sum + 7;
            Thread.Sleep(5);
        }
        if (sum == 42) Done.One();
    }

    /// <summary>Thirty writers of a full channel: the device behind it takes twenty items a second.</summary>
    public static void Backpressure()
    {
        Channel<int> jobs = Channel.CreateBounded<int>(10);
        for (int i = 0; i < 30; i++) work.Add(Submit(jobs.Writer, i));
        work.Add(Print(jobs.Reader));
    }

    static async Task Submit(ChannelWriter<int> jobs, int job)
    {
        while (true) await jobs.WriteAsync(job);
    }

    static async Task Print(ChannelReader<int> jobs)
    {
        await foreach (int job in jobs.ReadAllAsync())
        {
            await Task.Delay(50);
            Done.One();
        }
    }

    /// <summary>Pipes whose devices have nothing to say for minutes.</summary>
    public static void Listening()
    {
        for (int i = 0; i < 15; i++)
        {
            var pipe = new Pipe();
            work.Add(Say(pipe.Writer));
            work.Add(Hear(pipe.Reader));
        }
    }

    static async Task Say(PipeWriter writer)
    {
        while (true)
        {
            await writer.WriteAsync(new byte[3000]);
            await Task.Delay(TimeSpan.FromMinutes(2));
        }
    }

    static async Task Hear(PipeReader reader)
    {
        while (true)
        {
            ReadResult result = await reader.ReadAsync();
            Done.One();
            reader.AdvanceTo(result.Buffer.End);
        }
    }
}
