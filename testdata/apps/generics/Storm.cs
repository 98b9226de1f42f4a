// Threads that run generic methods, whose objects are young and are moved by every collection.
//
// Every frame of Deep and of Storm.Method has as its caller a method whose name says which instantiation it
// is: AsOrder calls Deep<Order>.Go and Method<Order>, and so on.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Generics;

class Deep<T>
{
    object neighbour;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Go(int depth)
    {
        neighbour = new byte[Random.Shared.Next(100)];
        int sum = typeof(T).Name.Length + Storm.Next(depth - 1) + 1;
        return neighbour is T ? 0 : sum;
    }

    /// <summary>Go without any use of T: the object is no more than an argument.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Plain(int depth)
    {
        neighbour = new byte[Random.Shared.Next(100)];
        return Storm.Next(depth - 1) + (neighbour is null ? 0 : 1);
    }
}

class Deeper<T> : Deep<T> { }

static class Storm
{
    public static void Start(int threads)
    {
        for (int i = 0; i < threads; i++)
        {
            App.Background($"storm-{i}", () =>
            {
                while (!App.Ending) Next(Random.Shared.Next(20));
            });
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Next(int depth)
    {
        if (depth <= 0) return Leaf();
        return Random.Shared.Next(4) switch
        {
            0 => AsOrder(depth) + 1,
            1 => AsBill(depth) + 1,
            2 => AsText(depth) + 1,
            _ => AsList(depth) + 1,
        };
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Leaf()
    {
        int end = Random.Shared.Next(3);
        if (end == 0) Thread.Sleep(1);
        if (end == 1) return 1;
        int sum = 0;
        for (int i = 0; i < 20_000; i++) sum += new object().GetHashCode() & 1;
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AsOrder(int depth) => (depth % 3) switch
    {
        0 => Make<Order>().Go(depth) + 1,
        1 => Make<Order>().Plain(depth) + 1,
        _ => Method<Order>(depth) + 1,
    };

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AsBill(int depth) => (depth % 3) switch
    {
        0 => Make<Bill>().Go(depth) + 1,
        1 => Make<Bill>().Plain(depth) + 1,
        _ => Method<Bill>(depth) + 1,
    };

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AsText(int depth) => (depth % 3) switch
    {
        0 => Make<string>().Go(depth) + 1,
        1 => Make<string>().Plain(depth) + 1,
        _ => Method<string>(depth) + 1,
    };

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AsList(int depth) => (depth % 3) switch
    {
        0 => Make<List<Order>>().Go(depth) + 1,
        1 => Make<List<Order>>().Plain(depth) + 1,
        _ => Method<List<Order>>(depth) + 1,
    };

    // Some garbage of each instantiation, of the same size, lies around the object.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static Deep<T> Make<T>()
    {
        GC.KeepAlive(new Deep<Order>());
        GC.KeepAlive(new Deeper<Bill>());
        Deep<T> made = Random.Shared.Next(2) == 0 ? new Deep<T>() : new Deeper<T>();
        GC.KeepAlive(new Deep<string>());
        GC.KeepAlive(new Deep<List<Order>>());
        return made;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Method<T>(int depth) => typeof(T).Name.Length + Next(depth - 1) + 1;
}
