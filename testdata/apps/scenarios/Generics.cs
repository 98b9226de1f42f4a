// Generic code, shared (over reference types) and not (over value types).
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;

namespace Scenarios;

static class Generics
{
    class Box<T>(T value)
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Use() => Static(value) + 1;

        [MethodImpl(MethodImplOptions.NoInlining)]
        static int Static(T v) => typeof(T) == v.GetType() ? Here.Block() + 1 : 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int OverReference() => new Box<string>("a").Use() + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int OverValue() => new Box<int>(1).Use() + 1;

    struct Pair<A, B>(A a, B b)
    {
        readonly A first = a;
        readonly B second = b;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Use() => new Pair<B, A>(second, first).Deeper() + 1;

        [MethodImpl(MethodImplOptions.NoInlining)]
        int Deeper() => Here.Block() + typeof(A).Name.Length + second.GetHashCode();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int InStruct() => new Pair<string, int>("a", 1).Use() + new Pair<int, long>(1, 2).Use();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Twice<T, U>(T t, U u, int depth) =>
        depth == 0 ? Here.Block() + typeof(T).Name.Length : Twice(u, new KeyValuePair<U, T>(u, t), depth - 1) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Method() => Twice("a", 1, 3) + Twice(1.5, 1, 1);

    class Outer<T>
    {
        public class Inner<U>
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            public int Go<V>(V v) =>
                Here.Block() + typeof(T).Name.Length + typeof(U).Name.Length + typeof(V).Name.Length;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Nested() =>
        new Outer<string>.Inner<int>().Go(1.5) + new Outer<int[]>.Inner<List<string>>().Go("");

    abstract class Visitor
    {
        public abstract int Visit<T>(T t);
    }

    sealed class BlockingVisitor : Visitor
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public override int Visit<T>(T t) => t is List<string> ? Here.Block() + 1 : Visit(new List<T> { t }) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Virtual()
    {
        Visitor v = new BlockingVisitor();
        return v.Visit("a") + 1;
    }

    interface IMaker<T>
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        int Make(T t) => Here.Block() + t.ToString().Length;         // a default interface method

        static abstract int Create(T t);
    }

    sealed class Maker : IMaker<string>
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int Create(string s) => ((IMaker<string>)new Maker()).Make(s) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByConstraint<T, U>(U u) where T : IMaker<U> => T.Create(u) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Interface() => ByConstraint<Maker, string>("a") + 1;
}
