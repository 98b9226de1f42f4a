using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Failing;

/// <summary>Ways in which the process dies.</summary>
static class Deaths
{
    public static readonly Dictionary<string, Action> Ways = new()
    {
        ["main"] = () => Shop.Process("nobody catches it"),
        ["thread"] = InThread,
        ["inner"] = () => Shop.Wrapped(2),
        ["aggregate"] = () => All().Wait(),
        ["async-void"] = () =>
        {
            AsyncVoid();
            Thread.Sleep(Timeout.Infinite);
        },
        ["native-callback"] = FromNative,
        ["handler"] = WithHandler,
        ["overflow"] = () => Descend(0),
        ["fail-fast"] = () =>
        {
            Shop.Caught("has nothing to do with it");
            FailFast(null);
        },
        ["fail-fast-with"] = FailFastWith,
        ["lines"] = () => Shop.Process("first line\nsecond line"),
    };

    static void InThread()
    {
        var thread = new Thread(() => Shop.Process("in a thread")) { Name = "doomed" };
        thread.Start();
        thread.Join();
    }

    static async Task<int> One(string what)
    {
        await Task.Yield();
        return Shop.Process(what);
    }

    static async Task Two(string what)
    {
        await Task.Delay(1);
        int n = await One(what);
        Console.Error.WriteLine(n);
    }

    static async Task All()
    {
        Task all = Task.WhenAll(Two("first"), Two("second"), Task.Run(() => Shop.Wrapped(1)));
        try
        {
            await all;
        }
        catch (OrderRefused)
        {
            all.Wait();
        }
    }

    static async void AsyncVoid() => await Two("async void");

    delegate int Compare(nint a, nint b);

    [DllImport("libc")] static extern void qsort(int[] items, nuint count, nuint size, Compare compare);

    class Item
    {
        public int Rank;
    }

    static Item none;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RankOf(Item item) => item.Rank;

    static int ByRank(nint a, nint b)
    {
        int left = RankOf(new Item());
        return left - RankOf(none);
    }

    static void FromNative() => qsort([3, 1, 2, 0], 4, sizeof(int), ByRank);

    static void WithHandler()
    {
        // As loggers do: with an exception of its own.
        AppDomain.CurrentDomain.UnhandledException += (_, e) =>
        {
            Exception own = Shop.Caught("the handler's own");
            Console.Error.WriteLine($"the handler was told of {e.ExceptionObject.GetType()}, not of {own.GetType()}");
        };
        try
        {
            Shop.Process("the original");
        }
        finally
        {
            Console.Error.WriteLine("finally");
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Descend(int n)
    {
        Span<byte> room = stackalloc byte[256];
        room[n & 255] = 1;
        return Descend(n + 1) + room[(n + 1) & 255];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void FailFast(Exception e)
    {
        if (e == null) Environment.FailFast("as it was told to");
        else Environment.FailFast("because of another", e);
    }

    static void FailFastWith()
    {
        Exception wanted = Shop.Caught("the reason");
        Shop.Caught("the last that was thrown");
        FailFast(wanted);
    }
}
