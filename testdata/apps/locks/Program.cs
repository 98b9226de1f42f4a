// Threads that wait for locks which others hold, in methods that are known by name: whoever is in a
// lock is in a method Hold…, and nobody else is.
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Shop;

sealed class Parcel
{
    public int Sum;
}

sealed class Order
{
    public int Sum;
}

static class Program
{
    static readonly Order order = new(), crowded = new();
    static readonly object gate = new();
    static readonly Lock ledger = new();

    static void Main(string[] args)
    {
        App.Start(args);
        if (Array.IndexOf(args, "--parcels") >= 0)
        {
            Loop("packs", HoldParcel);
            Loop("receives", Receive);
            App.Line("READY");
            App.WaitForEnd();
            App.Line("RESULT OK");
            App.Exit(0);
        }
        Loop("saves", HoldSave);
        Loop("loads", Load);
        Loop("audits", HoldAudit);
        Loop("reads", Read);
        Loop("posts", HoldPost);
        Loop("sums", Sum);
        for (int i = 0; i < 3; i++) Loop($"crowd-{i}", HoldCrowd);
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Loop(string name, Action once) => App.Background(name, () =>
    {
        while (true) once();
    });

    /// <summary>Is blocked while it holds the lock, in a method that it calls.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void HoldSave()
    {
        lock (order) Ship();
        Thread.Sleep(30);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ship() => Thread.Sleep(80);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Load()
    {
        lock (order) order.Sum++;
        Thread.Sleep(5);
    }

    /// <summary>Runs while it holds the lock.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void HoldAudit()
    {
        lock (gate)
        {
            for (long end = Stopwatch.GetTimestamp() + Stopwatch.Frequency / 20; Stopwatch.GetTimestamp() < end;) { }
        }
        Thread.Sleep(100);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Read()
    {
        lock (gate) { }
        Thread.Sleep(5);
    }

    /// <summary>Holds a System.Threading.Lock, where there is one.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void HoldPost()
    {
        ledger.Enter();
        try { Thread.Sleep(60); }
        finally { ledger.Exit(); }
        Thread.Sleep(40);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sum()
    {
        ledger.Enter();
        ledger.Exit();
        Thread.Sleep(5);
    }

    /// <summary>The lock goes from one thread to another while others wait.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void HoldCrowd()
    {
        lock (crowded) Thread.Sleep(3);
        Thread.Sleep(0);
    }

    static readonly SemaphoreSlim packed = new(0), received = new(0);
    static Parcel sent;

    /// <summary>Each lock is waited for once. Then its object is gone.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void HoldParcel()
    {
        var parcel = new Parcel();
        lock (parcel)
        {
            sent = parcel;
            packed.Release();
            Thread.Sleep(30);
        }
        received.Wait();
        parcel = null;
        GC.Collect();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Receive()
    {
        packed.Wait();
        Parcel parcel = Interlocked.Exchange(ref sent, null);
        lock (parcel) parcel.Sum++;
        received.Release();
    }
}
