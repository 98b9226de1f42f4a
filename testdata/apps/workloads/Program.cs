// Programs that are well: each kind of work, under as much load as it is told to have.
//
//   --kind NAME     what it does: Kinds below has the list
//   --threads N     how many threads or tasks do it, default 2
//   --stdin, --max-seconds: see App.cs
//
// READY is written when the work has begun. Any command is answered with how many units of work were done so far.
using System;
using System.Collections.Generic;
using System.Threading;
using Common;

namespace Workloads;

static class Program
{
    static readonly Dictionary<string, Action<int>> kinds = new()
    {
        ["idle"] = _ => { },
        ["batch"] = Computing.Batch,
        ["parallel"] = Computing.InParallel,
        ["simulation"] = Computing.Simulation,
        ["spells"] = Computing.Spells,
        ["json"] = Allocating.Documents,
        ["text"] = Allocating.Text,
        ["cache"] = Allocating.Cache,
        ["pooled"] = Allocating.Pooled,
        ["finalizers"] = Allocating.Finalizers,
        ["exceptions-at-start"] = Allocating.ExceptionsAtStart,
        ["jit"] = Allocating.NewCode,
        ["lock"] = Sharing.ShortLock,
        ["readers"] = Sharing.Readers,
        ["semaphore"] = Sharing.Throttled,
        ["monitor"] = Sharing.Mailbox,
        ["barrier"] = Sharing.Phases,
        ["queue"] = Sharing.Consumers,
        ["queue-full"] = Sharing.Backpressure,
        ["channels"] = Sharing.Channels,
        ["one-instance"] = Sharing.OneInstance,
        ["timers"] = Waiting.Timers,
        ["delays"] = Waiting.Delays,
        ["pool-batch"] = Computing.OnThePool,
        ["bursts"] = Waiting.Bursts,
        ["polling"] = Waiting.Polling,
        ["host"] = Waiting.Host,
        ["child"] = Waiting.Child,
        ["connections"] = Waiting.IdleConnections,
        ["echo"] = Waiting.Echo,
        ["receivers"] = Waiting.Receivers,
        ["files"] = Waiting.Files,
    };

    static void Main(string[] args)
    {
        App.Start(args);
        string kind = App.Text("kind", "");
        if (!kinds.TryGetValue(kind, out Action<int> begin))
        {
            App.Fail($"no kind {kind}: there are {string.Join(", ", kinds.Keys)}");
            return;
        }
        App.Answer = _ => [$"{Work.Done}"];
        begin(App.Int("threads", 2));
        App.Line("READY");
        App.WaitForEnd();
        App.Line(Work.Wrong == null ? "RESULT OK" : "RESULT BAD " + Work.Wrong);
        App.Exit(Work.Wrong == null ? 0 : 1);
    }
}

/// <summary>What was done, and threads that do it.</summary>
static class Work
{
    static long done;

    public static volatile string Wrong;

    public static long Done => Interlocked.Read(ref done);

    public static void Count(long units = 1) => Interlocked.Add(ref done, units);

    /// <summary>Threads that repeat a piece of work, each with its number, until the program ends.</summary>
    public static void Threads(string name, int n, Action<int> piece)
    {
        for (int i = 0; i < n; i++)
        {
            int number = i;
            App.Background($"{name}-{i}", () =>
            {
                while (!App.Ending)
                {
                    piece(number);
                    Count();
                }
            });
        }
    }
}
