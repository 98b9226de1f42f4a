// Objects that are kept from being collected, each in a way of its own: by what the collector begins from, and by what
// leaks are made of. It answers
//
//   truth   what keeps what: "CLASS<tab>COUNT"
//   grow N  N more listeners, cached orders, timers and sessions
//   tidy    a collection
//
// With --leak KIND it does nothing but leak: KIND is event, feed, dictionary, timer, token, cache, handles, assemblies,
// or bounded, which is no leak.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Shop;

static class Program
{
    const int Each = 20;
    static readonly ManualResetEventSlim started = new(), stay = new();
    static readonly List<string> truth = new();

    static void Main(string[] args)
    {
        App.Start(args);
        if (App.Flag("leak")) Leak(App.Text("leak", "event"));
        else Fill();
        App.Line("READY");
        App.WaitForEnd();
        Keep.Blocked.Set();
        stay.Set();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Leak(string kind)
    {
        Leaks.WarmUp(3_000);
        for (int i = 0; i < 2; i++) GC.Collect(); // what there is now is old
        App.Background("leak", () => Leaks.Go(kind, kind switch
        {
            "feed" => 5_000,
            "assemblies" => 30,
            _ => 600,
        }));
    }

    static void Fill()
    {
        Handles();
        Leaks.Grow(Each);
        Fields();
        Note<Order>(Each);
        Note<Listener>(Each);
        Note<Reminder>(Each);
        Note<Session>(Each);
        App.Background("keeper", Local);
        started.Wait();
        Finalizers();
        Dead();
        App.Answer = Answer;
    }

    static IEnumerable<string> Answer(string command)
    {
        string[] words = command.Split(' ');
        switch (words[0])
        {
            case "grow":
                Leaks.Grow(int.Parse(words[1]));
                break;
            case "tidy":
                GC.Collect();
                break;
            case "truth":
                return truth;
        }
        return [];
    }

    static void Note<T>(int n) => truth.Add($"{typeof(T).FullName}\t{n}");

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Handles()
    {
        for (int i = 0; i < Each; i++)
        {
            GCHandle.Alloc(new ByStrong());
            GCHandle.Alloc(new ByPinned(), GCHandleType.Pinned);
            Keep.Of.Add(Keep.Key, new ByTable());
            Keep.Key = new object();
            Keep.Keys.Add(Keep.Key);
            Keep.Of.Add(Keep.Key, new ByTable());
            Keep.Key = new object();
        }
        Note<ByStrong>(Each);
        Note<ByPinned>(Each);
        Note<ByTable>(Each);
    }

    /// <summary>Objects that nothing keeps, and that have not been collected yet.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Dead()
    {
        for (int i = 0; i < Each; i++)
        {
            GCHandle.Alloc(new ByWeak(), GCHandleType.Weak);
            GCHandle.Alloc(new ByLongWeak(), GCHandleType.WeakTrackResurrection);
        }
        Note<ByWeak>(Each);
        Note<ByLongWeak>(Each);
    }

    static void Fields()
    {
        Keep.Plain = new ByStatic();
        Keep.Pair = (1, new ByStruct());
        Keep<Order>.Of = new ByGeneric();
        Note<ByStatic>(1);
        Note<ByStruct>(1);
        Note<ByGeneric>(1);
    }

    /// <summary>A thread that keeps something by a local variable, and something else by a field of its own.</summary>
    static void Local()
    {
        var local = new ByLocal();
        Keep.Own = new ByThread();
        Wait();
        GC.KeepAlive(local);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wait()
    {
        started.Set();
        stay.Wait();
    }

    /// <summary>Objects whose finalizers wait for one that does not come to an end.</summary>
    static void Finalizers()
    {
        MakeGarbage();
        GC.Collect();
        Keep.Entered.Wait();
        MakeGarbage();
        GC.Collect();
        GC.Collect();
        Note<ByFinalizer>(ByFinalizer.Left);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void MakeGarbage()
    {
        new Blocker().Arm();
        for (int i = 0; i < Each; i++) new ByFinalizer().Arm();
    }
}

/// <summary>Static fields of several kinds.</summary>
static class Keep
{
    public static ByStatic Plain;
    public static (int, ByStruct) Pair;
    [ThreadStatic] public static ByThread Own;
    public static readonly ConditionalWeakTable<object, ByTable> Of = new();
    public static object Key = new();
    public static readonly List<object> Keys = new();
    public static readonly ManualResetEventSlim Entered = new(), Blocked = new();
}

static class Keep<T>
{
    public static ByGeneric Of;
}
