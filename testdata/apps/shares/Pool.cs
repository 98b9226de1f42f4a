// A pipeline of asynchronous methods on the thread pool: its stages wait without a
// thread, and compute on whichever there is.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Shares;

static class Pool
{
    static readonly Dictionary<string, Meter> spent = new();

    public static void Start()
    {
        var between = Channel.CreateBounded<long>(4);
        _ = Produce(between.Writer);
        _ = Consume(between.Reader);
    }

    // About a tenth of a CPU for both stages.
    static async Task Produce(ChannelWriter<long> to)
    {
        var random = new Random(4711);
        while (!App.Ending)
        {
            long ns = random.NextInt64(2_000_000, 8_000_000);
            await Task.Delay(random.Next(30, 80));
            await Parse(ns / 3);
            await to.WriteAsync(ns - ns / 3);
        }
    }

    static async Task Consume(ChannelReader<long> from)
    {
        await foreach (long ns in from.ReadAllAsync())
        {
            await Task.Yield();
            Measured("Shares.Pool.Store", Store, ns);
        }
    }

    static async Task Parse(long ns)
    {
        await Task.Yield();
        Measured("Shares.Pool.ParseNow", ParseNow, ns);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ParseNow(long ns) => Cpu.Compute(ns);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Store(long ns) => Cpu.Compute(ns);

    static void Measured(string method, Action<long> run, long ns)
    {
        Meter m = Meter.Start();
        run(ns);
        m = Meter.Start() - m;
        lock (spent) spent[method] = spent.GetValueOrDefault(method) + m;
    }

    public static IEnumerable<string> Report()
    {
        var lines = new List<string>();
        lock (spent)
        {
            foreach ((string method, Meter m) in spent) lines.Add($"SHARE pool {method} {m.Cpu} {m.Wall}");
        }
        return lines;
    }
}
