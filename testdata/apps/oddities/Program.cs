// Services with diseases from public reports of outages, and healthy services that look odd. Nobody has told clrsnap
// of these shapes. Each service makes its own load.
//
//   --kind NAME     the service: Kinds below has the list
//   --stdin, --max-seconds: see App.cs
//
// READY is written when the load has begun. Any command is answered with what was done so far.
using System;
using System.Collections.Generic;
using System.Threading;
using Common;

namespace Oddities;

static class Program
{
    static readonly Dictionary<string, Action> kinds = new()
    {
        // Sick.
        ["audit"] = Audit.Start,
        ["lazy"] = Rates.Start,
        ["ticks"] = Poller.Start,
        ["cursors"] = Archive.Start,
        ["undo"] = Drawing.Start,
        ["collect"] = Thumbnails.Start,
        ["broadcast"] = Feed.Start,
        ["inline"] = CacheClient.Start,
        ["lines"] = Weather.Start,
        ["imports"] = Importer.Start,
        // Healthy.
        ["tide"] = Healthy.Tide,
        ["lockstep"] = Healthy.Lockstep,
        ["backpressure"] = Healthy.Backpressure,
        ["listening"] = Healthy.Listening,
        ["frames"] = Gateway.Start,
    };

    static void Main(string[] args)
    {
        App.Start(args);
        string kind = App.Text("kind", "");
        if (kind == "listener")
        {
            Feed.Listen(App.Text("pipe", ""));
            return;
        }
        if (!kinds.TryGetValue(kind, out Action begin))
        {
            App.Fail($"no kind {kind}: there are {string.Join(", ", kinds.Keys)}");
            return;
        }
        App.Answer = _ => [$"{Done.Count}"];
        begin();
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}

/// <summary>What a service has done.</summary>
static class Done
{
    static long count;

    public static long Count => Interlocked.Read(ref count);

    public static void One() => Interlocked.Increment(ref count);
}
