// The threads that everything happens on.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using Common;

namespace Events;

/// <summary>Something that is done again and again, so many times as often as the others.</summary>
sealed record Site(double Often, Action Run);

/// <summary>
/// A thread that visits its sites in random order, so that there is no period that
/// could beat with a sampling profiler's, at a rate that leaves the CPUs some time.
/// How often a site comes does not matter: the sites count.
/// </summary>
sealed class Lane(string name, double perSecond, Site[] sites)
{
    /// <summary>As a rate: without any pause.</summary>
    public const double Unpaced = double.PositiveInfinity;

    const int ShortRounds = 20;

    readonly ManualResetEventSlim warm = new(false);
    readonly double sum = sites.Sum(s => s.Often);
    readonly Random random = new(name.Aggregate(17, (hash, c) => hash * 31 + c));
    Thread thread;
    string wrong;

    public void Start() => thread = App.Background(name, () => Guarded(() =>
    {
        Round();
        warm.Set();
        Loop();
    }));

    void Guarded(Action body)
    {
        try { body(); }
        catch (Exception e) { wrong = $"{name}: {e}".Replace('\n', ' '); }
        warm.Set();
    }

    // Each site once.
    void Round()
    {
        foreach (Site s in sites) s.Run();
    }

    void Loop()
    {
        long start = Stopwatch.GetTimestamp();
        for (long visits = 1; !App.Ending; visits++)
        {
            Pick().Run();
            double ahead = visits / perSecond - Stopwatch.GetElapsedTime(start).TotalSeconds;
            if (ahead >= .001) Thread.Sleep((int)(ahead * 1000));
        }
    }

    Site Pick()
    {
        double at = random.NextDouble() * sum;
        foreach (Site s in sites)
        {
            if ((at -= s.Often) < 0) return s;
        }
        return sites[^1];
    }

    public static void RunShort(Lane[] lanes)
    {
        foreach (Lane lane in lanes)
        {
            lane.thread = App.Background(lane.Name, () => lane.Guarded(() =>
            {
                for (int i = 0; i < ShortRounds; i++) lane.Round();
            }));
        }
        Join(lanes);
    }

    public static void WaitWarm(Lane[] lanes)
    {
        foreach (Lane lane in lanes) lane.warm.Wait();
    }

    public static void Join(Lane[] lanes)
    {
        foreach (Lane lane in lanes)
        {
            if (!lane.thread.Join(20_000)) lane.wrong ??= $"{lane.Name}: does not end";
        }
    }

    public static IEnumerable<string> Wrong(Lane[] lanes) =>
        lanes.Where(l => l.wrong != null).Select(l => l.wrong + "; ");

    string Name => name;
}
