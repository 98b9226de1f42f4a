// Allocates at known sites, keeps a known part of it, and drops the rest. It answers
//
//   fill N       each site allocates about N MB, mixed with the others
//   leak N       the site that leaks alone, N MB
//   truth        what is alive by then: "SITE<tab>CLASS<tab>ALLOCATED<tab>KEPT", in bytes
//   collect      runs a full, compacting collection, also of large objects
//   moved        how many of the blocks that are kept lie elsewhere than when they were allocated, and of how many
//   handles      how many handles the collector counts, of all kinds, after a full collection
//   churn MB     goes on allocating so many MB a second, at the sites that keep nothing, until "rest"
//   rest         stops that
//   throughput S allocates small objects for S milliseconds on two threads; how many MB a second
//   small MB     allocates so many MB of small objects, and keeps none
//   forget       drops what is kept
//
// --fill N does that before READY.
using System;
using System.Collections.Generic;
using System.Diagnostics.Tracing;
using System.Runtime;
using System.Threading;
using Common;

namespace Survivors;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        App.Answer = Answer;
        if (App.Flag("fill")) Site.Fill(App.Int("fill", 1));
        App.Line("READY");
        App.WaitForEnd();
        Churn.Stop();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static IEnumerable<string> Answer(string command)
    {
        string[] words = command.Split(' ');
        switch (words[0])
        {
            case "fill":
                Site.Fill(int.Parse(words[1]));
                return [];
            case "leak":
                Site.Leaking(int.Parse(words[1]));
                return [];
            case "truth":
                return Site.Truth();
            case "collect":
                Collect();
                return [];
            case "moved":
                return [Kept.Moved()];
            case "handles":
                return [$"{Handles.Count()}"];
            case "churn":
                Churn.Start(int.Parse(words[1]));
                return [];
            case "rest":
                Churn.Stop();
                return [];
            case "throughput":
                return [$"{Churn.Throughput(int.Parse(words[1]))}"];
            case "small":
                Churn.SmallObjects(int.Parse(words[1]));
                return [];
            case "forget":
                Kept.Forget();
                return [];
        }
        return ["?"];
    }

    static void Collect()
    {
        GCSettings.LargeObjectHeapCompactionMode = GCLargeObjectHeapCompactionMode.CompactOnce;
        GC.Collect(GC.MaxGeneration, GCCollectionMode.Forced, blocking: true, compacting: true);
    }
}

/// <summary>How many handles there are, as the collector itself counts them (GCHeapStats).</summary>
sealed class Handles : EventListener
{
    const EventKeywords Collector = (EventKeywords)1;
    static readonly AutoResetEvent counted = new(false);
    static long count;

    public static long Count()
    {
        using var listener = new Handles();
        // The events of a collection that was under way when listening began say nothing of what is asked.
        for (int i = 0; i < 2; i++)
        {
            counted.Reset();
            GC.Collect();
            counted.WaitOne();
        }
        return Interlocked.Read(ref count);
    }

    protected override void OnEventSourceCreated(EventSource source)
    {
        if (source.Name == "Microsoft-Windows-DotNETRuntime") EnableEvents(source, EventLevel.Informational, Collector);
    }

    protected override void OnEventWritten(EventWrittenEventArgs e)
    {
        int at = e.PayloadNames?.IndexOf("GCHandleCount") ?? -1;
        if (at < 0) return;
        Interlocked.Exchange(ref count, Convert.ToInt64(e.Payload[at]));
        counted.Set();
    }
}
