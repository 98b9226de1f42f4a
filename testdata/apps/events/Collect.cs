// Garbage collections: those that methods ask for, and those that allocations
// trigger.
using System;
using System.Runtime.CompilerServices;

namespace Events;

static class Collect
{
    public static Lane[] Lanes()
    {
        Truth.BeforeReport += () =>
        {
            long count = GC.CollectionCount(0) - youngest.Count - middle.Count - all.Count - unasked.Count;
            unasked.Add(count, count);
        };
        return [new Lane("collects", 20, [new(6, Youngest), new(3, Middle), new(1, All), new(5, ByAllocating)])];
    }

    static readonly Tally youngest = Truth.Of("gc", "Events.Collect." + nameof(Youngest), "gen0");
    static readonly Tally middle = Truth.Of("gc", "Events.Collect." + nameof(Middle), "gen1");
    static readonly Tally all = Truth.Of("gc", "Events.Collect." + nameof(All), "gen2");
    static readonly Tally unasked = Truth.Of("gc", "-", "-"); // whoever's allocation it was

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Youngest()
    {
        GC.Collect(0);
        youngest.Add();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Middle()
    {
        GC.Collect(1);
        middle.Add();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void All()
    {
        GC.Collect(2, GCCollectionMode.Forced, blocking: true);
        all.Add();
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
