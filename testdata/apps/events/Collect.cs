// Garbage collections: those that methods ask for, and those that allocations
// trigger.
using System;
using System.Linq;
using System.Runtime.CompilerServices;

namespace Events;

static class Collect
{
    public static Lane[] Lanes()
    {
        Truth.BeforeReport += () =>
        {
            long asked = youngest.Concat(middle).Concat(all).Sum(t => t.Count);
            long count = GC.CollectionCount(0) - asked - unasked.Count;
            unasked.Add(count, count);
        };
        return [new Lane("collects", 20, [new(6, Youngest), new(3, Middle), new(1, All), new(5, ByAllocating)])];
    }

    static readonly Tally[] youngest = Of(nameof(Youngest));
    static readonly Tally[] middle = Of(nameof(Middle));
    static readonly Tally[] all = Of(nameof(All));
    static readonly Tally unasked = Truth.Of("gc", "-", "-"); // whoever's allocation it was

    /// <summary>The tallies of a method: for some time on end, the collector can choose an older generation than
    /// it is asked for.</summary>
    static Tally[] Of(string method) =>
        Enumerable.Range(0, 3).Select(gen => Truth.Of("gc", "Events.Collect." + method, "gen" + gen)).ToArray();

    static void Collected(Tally[] by) => by[GC.GetGCMemoryInfo(GCKind.Any).Generation].Add();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Youngest()
    {
        GC.Collect(0);
        Collected(youngest);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Middle()
    {
        GC.Collect(1);
        Collected(middle);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void All()
    {
        GC.Collect(2, GCCollectionMode.Forced, blocking: true);
        Collected(all);
    }

    static object kept;

    /// <summary>Without other allocations, it is here that the other collections begin.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ByAllocating()
    {
        const int bytes = 32 << 20, each = 8 << 10;
        for (int i = 0; i < bytes / each; i++) kept = new byte[each];
    }
}
