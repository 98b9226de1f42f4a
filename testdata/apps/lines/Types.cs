// Generics, structs and interfaces; calls that the compiler treats in a special way.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;

namespace Lines;

partial class Halves
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    partial void Second() => Here.Stop(); // @partial
}

static class Types
{
    public static readonly Place[] Places =
    [
        new("generic-ref", () => Generic("s")), // @generic-ref
        new("generic-value", () => Generic(3)), // @generic-value
        new("generic-class", () => new Box<string>("s").Get()), // @generic-class
        new("generic-static", () => Box<object>.Static(2)), // @generic-static
        new("generic-virtual", GenericVirtual),
        new("generic-struct", () => new Cell<long>(2).Get()), // @generic-struct
        new("generic-lambda", GenericLambda<string>),
        new("interface", () => Call(new Thing())), // @interface
        new("explicit", () => CallOther(new Thing())), // @explicit
        new("default-method", () => CallDefault(new Thing())), // @default-method
        new("static-abstract", StaticAbstract<Metre>),
        new("struct", StructMethod),
        new("struct-boxed", () => Call(new Value(1))), // @struct-boxed
        new("ref-struct", RefStruct),
        new("ref-return", RefReturn),
        new("inlined", Inlined),
        new("inlined-twice", InlinedTwice),
        new("optimized", Optimized),
        new("no-optimize", NotOptimized),
        new("tail-call", () => TailCalls(3) + 1), // @tail-call
        new("recursion", () => Recurses(5)), // @recursion
        new("many-arguments", ManyArguments),
        new("large-frame", LargeFrame),
        new("enum-flag", EnumArgument),
    ];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Generic<T>(T value)
    {
        string s = value.ToString();
        return Here.Stop() + s.Length; // @generic-ref @generic-value
    }

    sealed class Box<T>
    {
        readonly T value;

        public Box(T value) => this.value = value;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Get()
        {
            int n = typeof(T).Name.Length;
            n += Here.Stop(); // @generic-class
            return n + value.ToString().Length;
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int Static(int n) => Here.Stop() + n; // @generic-static
    }

    abstract class Maker
    {
        public abstract int Make<T>(T of);
    }

    sealed class OneMaker : Maker
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public override int Make<T>(T of) => Here.Stop() + typeof(T).Name.Length; // @generic-virtual
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int GenericVirtual()
    {
        Maker m = new OneMaker();
        return m.Make("s") + 1; // @generic-virtual
    }

    readonly struct Cell<T>
    {
        readonly T value;

        public Cell(T value) => this.value = value;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Get() => Here.Stop() + value.GetHashCode(); // @generic-struct
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int GenericLambda<T>()
    {
        Func<int> f = () => Here.Stop() + typeof(T).Name.Length; // @generic-lambda
        return f() + 1; // @generic-lambda
    }

    interface IStops
    {
        int Go(int n);

        [MethodImpl(MethodImplOptions.NoInlining)]
        int ByDefault(int n)
        {
            n++;
            return Here.Stop() + n; // @default-method
        }
    }

    interface IOther
    {
        int Go(int n);
    }

    sealed class Thing : IStops, IOther
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Go(int n) => Here.Stop() + n; // @interface

        [MethodImpl(MethodImplOptions.NoInlining)]
        int IOther.Go(int n) => Here.Stop() + n + 1; // @explicit
    }

    struct Value : IStops
    {
        int n;

        public Value(int n) => this.n = n;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Go(int by)
        {
            n += by;
            n += Here.Stop(); // @struct @struct-boxed
            return n;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Call(IStops i) => i.Go(2) + 1; // @interface @struct-boxed

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CallOther(IOther i) => i.Go(2) + 1; // @explicit

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CallDefault(IStops i) => i.ByDefault(2) + 1; // @default-method

    interface IUnit
    {
        static abstract int Size(int n);
    }

    readonly struct Metre : IUnit
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int Size(int n) => Here.Stop() + n; // @static-abstract
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int StaticAbstract<T>() where T : IUnit => T.Size(2) + 1; // @static-abstract

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int StructMethod()
    {
        var v = new Value(2);
        return v.Go(3) + 1; // @struct
    }

    ref struct Window
    {
        Span<int> over;

        public Window(Span<int> over) => this.over = over;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Sum()
        {
            over[0] = Here.Stop(); // @ref-struct
            return over[0] + over[1];
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RefStruct()
    {
        var w = new Window([1, 2]);
        return w.Sum() + 1; // @ref-struct
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ref int Place(int[] all)
    {
        all[1] += Here.Stop(); // @ref-return
        return ref all[1];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RefReturn()
    {
        int[] all = [1, 2];
        Place(all) = 3; // @ref-return
        return all[1];
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Small(int n)
    {
        n++;
        return Here.Stop() + n; // @inlined @inlined-twice
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Inlined()
    {
        int n = 1;
        n += Small(n); // @inlined
        return n;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    static int Outer(int n)
    {
        n += 2;
        n += Small(n); // @inlined-twice
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InlinedTwice()
    {
        int n = 1;
        n *= 3;
        n += Outer(n); // @inlined-twice
        n++;
        return n;
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization | MethodImplOptions.NoInlining)]
    static int Optimized()
    {
        int n = 0;
        for (int i = 0; i < 10; i++)
            n += i;
        n += Here.Stop(); // @optimized
        return n;
    }

    [MethodImpl(MethodImplOptions.NoOptimization | MethodImplOptions.NoInlining)]
    static int NotOptimized()
    {
        int n = 0;
        n += Here.Stop(); // @no-optimize
        return n;
    }

    // Optimised code leaves the callers' frames away.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int TailCalls(int depth)
    {
        if (depth == 0)
            return Here.Stop() + 1; // @tail-call
        return TailCalls(depth - 1); // @tail-call
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Recurses(int depth)
    {
        int n = depth;
        if (depth > 0)
            n += Recurses(depth - 1); // @recursion
        else
            n += Here.Stop(); // @recursion
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Take(int a, long b, double c, string d, int e, int f, int g, int h, decimal i) =>
        Here.Stop() + a + (int)b + (int)c + d.Length + e + f + g + h + (int)i; // @many-arguments

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ManyArguments() =>
        Take(1, 2, 3.5, "4", 5, 6, 7, 8, 9m) + 1; // @many-arguments

    [InlineArray(2000)]
    struct Large
    {
        public long First;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Fill(ref Large l) => l[0] = l[1999] = Here.Stop() + 1; // @large-frame

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LargeFrame()
    {
        Large a = default, b = default;
        a[3] = Fill(ref b); // @large-frame
        return (int)(a[3] + b[7]);
    }

    [Flags]
    enum Options { None, Some = 1, All = 3 }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int EnumArgument()
    {
        Options o = Options.Some;
        o |= Here.Stop() == 1 ? Options.All : Options.None; // @enum-flag
        return (int)o;
    }
}
