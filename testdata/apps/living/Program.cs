// Code that can be unloaded: some of it lives as long as the program, some is compiled, run and
// dropped all the time. Each such method is called LiveNNNNNN_K, or GoneNNNNNN_K, and all that it
// does is call Living.Marks.MarkK, with the same K, and add a few ones. So a stack tells by itself whether a name is right.
//
//   --living N    methods that live, of three kinds: expressions, dynamic methods, emitted types;
//                 default 1
//   --threads N   threads that call those, default 1
//   --churn N     threads that compile, call and drop others, and collect garbage; default 0
//   --stdin, --max-seconds: see App.cs
//
// At the end it prints how many methods it has made, dropped ones included:
//
//   COUNT methods <how many>
using System;
using System.Collections.Generic;
using System.Linq.Expressions;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Living;

static class Program
{
    static Func<int, long>[] living; // they live as long as this does
    static int made;

    static void Main(string[] args)
    {
        App.Start(args);
        living = new Func<int, long>[App.Int("living", 1)];
        for (int i = 0; i < living.Length; i++)
        {
            living[i] = Make("Live", i % 3);
            Check(living[i](0)); // it is compiled at its first call
        }
        for (int i = 0; i < App.Int("threads", 1); i++)
        {
            int first = i;
            App.Background($"living-{i}", () => CallLiving(first));
        }
        for (int i = 0; i < App.Int("churn", 0); i++)
        {
            int kind = i;
            App.Background($"churn-{i}", () => Churn(kind));
        }
        App.Line("READY");
        App.WaitForEnd();
        App.Line($"COUNT methods {made}");
        App.Line("RESULT OK");
        App.Exit(0);
    }

    /// <summary>Most are called for a few milliseconds, seldom.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void CallLiving(int i)
    {
        while (!App.Ending)
        {
            i = (i + 1) % living.Length;
            Check(living[i](10));
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Churn(int kind)
    {
        while (!App.Ending)
        {
            // One kind for some time: the next method gets the place of the last one.
            Check(MakeAndCall(kind++ / 64 % 3));
            Scatter();
            if (kind % 16 == 0) continue; // their places stay taken for a while
            for (int i = 0; i < 2; i++) // a dynamic method goes at the second collection
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long MakeAndCall(int kind) => Make("Gone", kind)(2);

    /// <summary>Something more to finalise.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Scatter()
    {
        for (int i = 0; i < 10; i++) _ = new Finalised();
    }

    sealed class Finalised
    {
        static int count;

        ~Finalised() => Interlocked.Increment(ref count);
    }

    static void Check(long done)
    {
        if (done <= 0) App.Fail("a method has not run");
    }

    static Func<int, long> Make(string prefix, int kind)
    {
        int n = Interlocked.Increment(ref made), mark = n / 3 % Marks.All.Length;
        string name = $"{prefix}{n:D6}_{mark}";
        return kind switch
        {
            0 => Expressed(name, Marks.All[mark]),
            1 => Dynamic(name, Marks.All[mark]),
            _ => Emitted(name, Marks.All[mark]),
        };
    }

    static Func<int, long> Expressed(string name, MethodInfo mark)
    {
        ParameterExpression ms = Expression.Parameter(typeof(int), "ms");
        // A body of changing length, so that not all fit into each other's places. The mark is not called
        // last: a tail call would leave no frame.
        Expression body = Expression.Call(mark, ms);
        for (int i = made % 5; i >= 0; i--)
        {
            body = Expression.Add(body, Expression.Call(typeof(Marks).GetMethod(nameof(Marks.One))));
        }
        return Expression.Lambda<Func<int, long>>(body, name, [ms]).Compile();
    }

    static Func<int, long> Dynamic(string name, MethodInfo mark)
    {
        var m = new DynamicMethod(name, typeof(long), [typeof(int)], typeof(Program).Module);
        Body(m.GetILGenerator(), mark);
        return m.CreateDelegate<Func<int, long>>();
    }

    /// <summary>A type in an assembly of its own, which can be collected.</summary>
    static Func<int, long> Emitted(string name, MethodInfo mark)
    {
        TypeBuilder type = AssemblyBuilder
            .DefineDynamicAssembly(new AssemblyName(name), AssemblyBuilderAccess.RunAndCollect)
            .DefineDynamicModule(name).DefineType("Emitted", TypeAttributes.Public);
        MethodBuilder m = type.DefineMethod(name, MethodAttributes.Public | MethodAttributes.Static,
            typeof(long), [typeof(int)]);
        Body(m.GetILGenerator(), mark);
        return type.CreateType().GetMethod(name).CreateDelegate<Func<int, long>>();
    }

    // long name(int ms) => mark(ms) + One() + One() …;
    static void Body(ILGenerator il, MethodInfo mark)
    {
        il.Emit(OpCodes.Ldarg_0);
        il.EmitCall(OpCodes.Call, mark, null);
        for (int i = made % 5; i >= 0; i--)
        {
            il.EmitCall(OpCodes.Call, typeof(Marks).GetMethod(nameof(Marks.One)), null);
            il.Emit(OpCodes.Add);
        }
        il.Emit(OpCodes.Ret);
    }
}

/// <summary>What the methods call: the same number is in both names. They do what becomes an event, too.</summary>
public static class Marks
{
    public static readonly MethodInfo[] All =
    [
        typeof(Marks).GetMethod(nameof(Mark0)), typeof(Marks).GetMethod(nameof(Mark1)),
        typeof(Marks).GetMethod(nameof(Mark2)), typeof(Marks).GetMethod(nameof(Mark3)),
    ];

    static readonly object gate = new();
    static object kept;
    static int events;

    [MethodImpl(MethodImplOptions.NoInlining)] public static long Mark0(int ms) => Work(ms) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)] public static long Mark1(int ms) => Work(ms) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)] public static long Mark2(int ms) => Work(ms) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)] public static long Mark3(int ms) => Work(ms) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)] public static long One() => 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Work(int ms)
    {
        long n = 0;
        ulong x = 88172645463325252;
        for (long end = Environment.TickCount64 + ms; Environment.TickCount64 < end; n++)
        {
            for (int i = 0; i < 20_000; i++)
            {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
            kept = new byte[4000 + (int)(x & 1023)];
        }
        switch (Interlocked.Increment(ref events) % 8)
        {
            case 0:
                try { Throw(); }
                catch (InvalidOperationException) { }
                break;
            case 1:
                var t = new Thread(() => { }, 128 << 10);
                t.Start();
                t.Join();
                break;
            case 2:
                Thread.Sleep(2);
                break;
            default:
                lock (gate) kept = null;
                break;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throw() => throw new InvalidOperationException("from code that can be unloaded");
}
