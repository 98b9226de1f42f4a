// Makes the runtime do what it can notify a profiler of, in known proportions from
// known methods, and counts it: a profiler's numbers can be compared with these.
//
//   --kinds a,b     what to do: alloc, exception, contention, thread, gc; default all
//   --alloc-mb N    how many MB a second are allocated, default 60
//   --throws N      visits a second to methods that throw, default 1000
//   --starts N      threads that are started a second, default 50
//   --throughput    instead allocates small objects as fast as threads can
//   --threads N     with --throughput, how many those are, default 2
//   --short         does a little of each kind and ends
//   --seconds N     goes on for so long, default until --stdin ends it
//   --stdin, --max-seconds: see App.cs
//
// READY comes when everything has been done once. At the end there is on stdout:
//
//   TRUTH <kind> <method> <type> <count> <amount>
//   COUNT <name> <number>
//   RESULT OK | RESULT BAD ...        exit code 0 or 1
//
// What is counted, from the beginning of Main:
//
//   kind        method             type                   amount
//   alloc       allocates          class of the objects   bytes; objects of class "-" are none that the method
//                                                         makes itself, and their count is 0
//   exception   throws             class                  as count
//   rethrow     has the "throw;"   class                  as count
//   catch       has the handler    class                  as count
//   contention  waits for a lock   class of the lock      nanoseconds
//   holder      waits for a lock   name of the thread     nanoseconds
//                                  that has it
//   thread      starts threads     System.Threading.Thread   as count
//   gc          collects           generation collected: gen0, gen1, gen2; method and type are "-" for
//                                  collections that nobody asked for; amount as count
//
// A method of a kind is on the stack of all that is its own and calls no other
// method of that kind. It is written as its frames are: state machines are
// Type.<Method>d__1.MoveNext. A type is written as Type.ToString does. The kinds
// count nothing for each other: exceptions are allocated, too, but not in alloc.
//
// The COUNTs are those of the whole process: allocated-bytes; gen-0, gen-1 and gen-2 as
// GC.CollectionCount has them; pause-microseconds of all collections as
// GC.GetTotalPauseDuration has them; milliseconds from the first thing done to the last; with
// --throughput units-per-second, a unit being 2 KB in 47 objects.
//
// The command "totals" on stdin is answered with what there is so far, without the
// waits and the few hundred objects that are under way:
//
//   NOW <CLOCK_MONOTONIC ns>
//   TRUTH ...
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using Common;

namespace Events;

static class Program
{
    static readonly Dictionary<string, Func<Lane[]>> kinds = new()
    {
        ["alloc"] = () => Allocate.Lanes(App.Int("alloc-mb", 60)),
        ["exception"] = Throw.Lanes,
        ["contention"] = Contend.Lanes,
        ["thread"] = Starts.Lanes,
        ["gc"] = Collect.Lanes,
    };

    static int Main(string[] args)
    {
        App.Start(args);
        Lane[] lanes = Chosen();
        long start = Stopwatch.GetTimestamp();
        if (App.Flag("short")) Lane.RunShort(lanes);
        else RunUntilEnd(lanes);
        TimeSpan took = Stopwatch.GetElapsedTime(start);

        foreach (string line in Truth.Report()) App.Line(line);
        foreach ((string name, long value) in Counts(took)) App.Line($"COUNT {name} {value}");
        string bad = string.Concat(Lane.Wrong(lanes).Concat(Truth.Wrong()));
        App.Line(bad == "" ? "RESULT OK" : "RESULT BAD " + bad);
        return bad == "" ? 0 : 1;
    }

    static Lane[] Chosen()
    {
        if (App.Flag("throughput")) return Throughput.Lanes();
        string[] names = App.Text("kinds", string.Join(',', kinds.Keys)).Split(',');
        foreach (string name in names.Where(n => !kinds.ContainsKey(n))) App.Fail($"unknown kind: {name}");
        return names.SelectMany(n => kinds[n]()).ToArray();
    }

    static void RunUntilEnd(Lane[] lanes)
    {
        foreach (Lane lane in lanes) lane.Start();
        Lane.WaitWarm(lanes);
        App.Answer = command => command == "totals" ? Truth.Report().Prepend($"NOW {Stopwatch.GetTimestamp()}") : [];
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.AskToEnd();
        Lane.Join(lanes);
    }

    // What the whole process has done, whoever counted it.
    static IEnumerable<(string, long)> Counts(TimeSpan took)
    {
        yield return ("allocated-bytes", GC.GetTotalAllocatedBytes(precise: true));
        for (int gen = 0; gen <= GC.MaxGeneration; gen++) yield return ($"gen-{gen}", GC.CollectionCount(gen));
        yield return ("pause-microseconds", (long)GC.GetTotalPauseDuration().TotalMicroseconds);
        yield return ("milliseconds", (long)took.TotalMilliseconds);
        if (App.Flag("throughput")) yield return ("units-per-second", (long)(Throughput.Units / took.TotalSeconds));
    }
}
