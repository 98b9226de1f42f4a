using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>Async methods that end, or do not.</summary>
static class Methods
{
    static long ended;

    /// <summary>
    /// Many methods wait, and one after another ends. With --collect the collector moves them now and then.
    /// </summary>
    public static void Ends()
    {
        var parcels = new TaskCompletionSource[20_000];
        var sent = new Task[parcels.Length];
        for (int i = 0; i < parcels.Length; i++)
        {
            parcels[i] = new();
            sent[i] = Send(parcels[i].Task);
        }
        bool collects = App.Flag("collect");
        App.Background("carrier", () =>
        {
            for (int i = 0; i < parcels.Length; i++)
            {
                Thread.Sleep(5);
                parcels[i].SetResult();
                if (collects && i % 100 == 0) GC.Collect(2, GCCollectionMode.Forced, blocking: true, compacting: true);
            }
        });
        App.Answer = _ => [$"ENDED {Volatile.Read(ref ended)}"];
        GC.KeepAlive(sent);
    }

    static async Task Send(Task parcel)
    {
        await parcel;
        Interlocked.Increment(ref ended);
    }
}
