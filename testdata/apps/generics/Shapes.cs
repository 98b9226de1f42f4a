// The ways in which a frame can be generic. Most methods say by typeof what they are. What is called
// Plain does not use its type parameters, so that the compiler need not keep them: the caller says it.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;
using static Generics.Say;

namespace Generics;

class Order { }
class Bill { }
class Failure<T> : Exception { }

delegate int Go();

class Box<T>
{
    public T Value;

    public Box() { }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public Box(Go go)
    {
        In($"Generics.Box<{N<T>()}>..ctor");
        go();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Use(Go go)
    {
        In($"Generics.Box<{N<T>()}>.Use");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Plain(Go go) => go() + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Keeps(Go go) => go() + (Value is null ? 1 : 2);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Static(Go go)
    {
        In($"Generics.Box<{N<T>()}>.Static");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int PlainStatic(Go go) => go() + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Generic<U>(Go go)
    {
        In($"Generics.Box<{N<T>()}>.Generic<{N<U>()}>");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int GenericStatic<U>(Go go)
    {
        In($"Generics.Box<{N<T>()}>.GenericStatic<{N<U>()}>");
        return go() + 1;
    }

    public int Property
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        get
        {
            In($"Generics.Box<{N<T>()}>.get_Property");
            return Block() + 1;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public virtual int Virtual(Go go)
    {
        In($"Generics.Box<{N<T>()}>.Virtual");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Lambda<U>(Go go)
    {
        In($"Generics.Box<{N<T>()}>.Lambda<{N<U>()}>");
        int one = N<U>().Length;
        return Call(() =>
        {
            In($"Generics.Box<{N<T>()}>.Lambda<{N<U>()}>");
            return Call(() =>
            {
                In($"Generics.Box<{N<T>()}>.Lambda<{N<U>()}>");
                return go() + one;
            }) + 1;
        }) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Call(Go go)
    {
        In($"Generics.Box<{N<T>()}>.Call");
        return go() + 1;
    }

    public class Inner<U>
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Use<V>(Go go)
        {
            In($"Generics.Box<{N<T>()}>+Inner<{N<U>()}>.Use<{N<V>()}>");
            return go() + 1;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int This(Go go)
        {
            In($"Generics.Box<{N<T>()}>+Inner<{N<U>()}>.This");
            return go() + 1;
        }
    }
}

class ListBox<T> : Box<List<T>>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public override int Virtual(Go go)
    {
        In($"Generics.ListBox<{N<T>()}>.Virtual");
        return base.Virtual(go) + 1;
    }
}

sealed class OrderBox : ListBox<Order> { }

struct Pair<A, B> : IMaker<A>
{
    public A First;
    public B Second;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Use(Go go)
    {
        In($"Generics.Pair<{N<A>()}, {N<B>()}>.Use");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Plain(Go go) => go() + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Generic<C>(Go go)
    {
        In($"Generics.Pair<{N<A>()}, {N<B>()}>.Generic<{N<C>()}>");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Make(Go go)
    {
        In($"Generics.Pair<{N<A>()}, {N<B>()}>.Make");
        return go() + 1;
    }
}

interface IMaker<T>
{
    int Make(Go go);

    [MethodImpl(MethodImplOptions.NoInlining)]
    int Default(Go go)
    {
        In($"Generics.IMaker<{N<T>()}>.Default");
        return go() + 1;
    }
}

interface ICreate<T>
{
    static abstract int Create<U>(Go go);
}

class Maker<T> : IMaker<T>, ICreate<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    int IMaker<T>.Make(Go go)
    {
        In($"Generics.Maker<{N<T>()}>.Generics.IMaker<T>.Make");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Create<U>(Go go)
    {
        In($"Generics.Maker<{N<T>()}>.Create<{N<U>()}>");
        return go() + 1;
    }
}

abstract class Visitor
{
    public abstract int Visit<T>(Go go);
}

sealed class SayingVisitor : Visitor
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public override int Visit<T>(Go go)
    {
        In($"Generics.SayingVisitor.Visit<{N<T>()}>");
        return go() + 1;
    }
}

static class Methods
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Use<T>(Go go)
    {
        In($"Generics.Methods.Use<{N<T>()}>");
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Plain<T>(Go go) => go() + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Created<T, U>(Go go) where T : ICreate<U>
    {
        In($"Generics.Methods.Created<{N<T>()}, {N<U>()}>");
        return T.Create<T>(go) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Growing<T, U>(int depth, Go go)
    {
        In($"Generics.Methods.Growing<{N<T>()}, {N<U>()}>");
        return depth == 0 ? go() + 1 : Growing<U, Pair<U, T>>(depth - 1, go) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Local<T>(Go go)
    {
        In($"Generics.Methods.Local<{N<T>()}>");
        return Inside<List<T>>() + 1;

        [MethodImpl(MethodImplOptions.NoInlining)]
        int Inside<U>()
        {
            In($"Generics.Methods.Local<{N<T>()}, {N<U>()}>");
            return go() + N<U>().Length;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Lambda<T>()
    {
        In($"Generics.Methods.Lambda<{N<T>()}>");
        Go go = static () =>
        {
            In($"Generics.Methods.Lambda<{N<T>()}>");
            return Block() + 1;
        };
        return go() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static IEnumerable<T> Items<T>(Go go)
    {
        In($"Generics.Methods.Items<{N<T>()}>");
        go();
        yield return default;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static async Task<T> RunAsync<T>(Go go, bool yield)
    {
        if (yield) await Task.Yield();
        In($"Generics.Methods.RunAsync<{N<T>()}>");
        go();
        return default;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Catch<T>(Go go)
    {
        In($"Generics.Methods.Catch<{N<T>()}>");
        try
        {
            Throw<T>();
        }
        catch (Failure<T>)
        {
            return go() + 1;
        }
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Finally<T>(Go go)
    {
        In($"Generics.Methods.Finally<{N<T>()}>");
        try
        {
            try
            {
                Throw<T>();
            }
            finally
            {
                go();
            }
        }
        catch (Failure<T>)
        {
        }
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throw<T>() => throw new Failure<T>();

    /// <summary>A loop that on-stack replacement gets hold of.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Loop<T>(int rounds, Go go)
    {
        int sum = 0;
        for (int i = 0; i < rounds; i++) sum = sum * 31 + i % 7;
        In($"Generics.Methods.Loop<{N<T>()}>");
        return go() + sum;
    }
}

class Looping<T>
{
    public int Sum;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Loop(int rounds, Go go)
    {
        for (int i = 0; i < rounds; i++) Sum = Sum * 31 + i % 7;
        In($"Generics.Looping<{N<T>()}>.Loop");
        return go() + Sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Finally(Go go)
    {
        In($"Generics.Looping<{N<T>()}>.Finally");
        try
        {
            Sum++;
            if (Sum == int.MaxValue) return 1;
        }
        finally
        {
            go();
        }
        return 2;
    }
}
