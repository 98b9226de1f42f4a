// Threads that wait below methods that the compiler inlines, or might. Each case is a method of Cases, which
// is optimised at once, and has a thread with its name. All wait in Bottom.Stop, or where the case says.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Inlined;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        MethodInfo[] cases = typeof(Cases).GetMethods(BindingFlags.Static | BindingFlags.Public);
        var started = new CountdownEvent(cases.Length);
        Bottom.Reached = started;
        foreach (MethodInfo m in cases)
        {
            var run = m.CreateDelegate<Action<int>>();
            run(0);
            new Thread(() => run(1)) { IsBackground = true, Name = m.Name }.Start();
        }
        started.Wait();
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}

static class Bottom
{
    public static CountdownEvent Reached;

    // Waits, if it is told to.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Stop(int n)
    {
        if (n == 0) return 1;
        Reached.Signal();
        Thread.Sleep(Timeout.Infinite);
        return n;
    }

    [DllImport("libc")]
    public static extern int pause();
}

// What is inlined.
static class Small
{
    public static int Sink;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void Step(int n) { Bottom.Stop(n); Sink++; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void Above(int n) { Step(n); Sink++; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Value(int n) => Bottom.Stop(n);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Other(int n) => Bottom.Stop(n);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static T Generic<T>(T v, int n) { Bottom.Stop(n); return v; }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void Both(int n) { Step(0); Sink++; Step(n); Sink++; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Apart(int n) { Bottom.Stop(n); Sink++; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Leaves(int n) => Bottom.Stop(n);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static int Last(int n) => Leaves(n);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void Native(int n)
    {
        if (n == 0) return;
        Bottom.Reached.Signal();
        Bottom.pause();
        Sink++;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void Calls(Func<int, int> f, int n) { Sink += f(n); }
}

struct Counter
{
    public int N;

    public int Next
    {
        [MethodImpl(MethodImplOptions.AggressiveInlining)]
        get { Bottom.Stop(N); return ++N; }
    }
}

class Made
{
    public int N;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public Made(int n) { N = n; Bottom.Stop(n); N++; }
}

class Holder<T>
{
    public T Value;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public void Put(T v, int n) { Value = v; Bottom.Stop(n); Value = default; }
}

interface IWork { void Work(int n); }

sealed class Worker : IWork
{
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public void Work(int n) { Bottom.Stop(n); Small.Sink++; }
}

sealed class Quiet : IWork
{
    public void Work(int n) { Small.Sink++; }
}

static class Cases
{
    const MethodImplOptions Once = MethodImplOptions.AggressiveOptimization | MethodImplOptions.NoInlining;

    [MethodImpl(Once)] public static void One(int n) { Small.Step(n); Small.Sink++; }
    [MethodImpl(Once)] public static void Two(int n) { Small.Above(n); Small.Sink++; }
    [MethodImpl(Once)] public static void Result(int n) { Small.Sink += Small.Value(n); }
    [MethodImpl(Once)] public static void Property(int n) { var c = new Counter { N = n }; Small.Sink += c.Next; }
    [MethodImpl(Once)] public static void Constructor(int n) { Small.Sink += new Made(n).N; }
    [MethodImpl(Once)] public static void GenericMethod(int n) { Small.Sink += Small.Generic("", n).Length; }
    [MethodImpl(Once)] public static void GenericType(int n) { new Holder<int>().Put(7, n); Small.Sink++; }
    [MethodImpl(Once)] public static void PInvoke(int n) { Small.Native(n); Small.Sink++; }
    [MethodImpl(Once)] public static void Unique(int n) { Small.Both(n); Small.Sink++; }

    // The runtime replaces the IL of some methods of Interlocked, but not by calls of the program's methods.
    [MethodImpl(Once)] public static void Atomic(int n)
    {
        Small.Sink = Interlocked.Increment(ref Small.Sink) + Small.Value(n);
    }

    // A virtual call that the compiler can see through.
    [MethodImpl(Once)] public static void Interface(int n) { IWork w = new Worker(); w.Work(n); Small.Sink++; }

    // Not inlined.
    [MethodImpl(Once)] public static void Plain(int n) { Small.Apart(n); Small.Sink++; }
    [MethodImpl(Once)] public static void Direct(int n) { Bottom.Stop(n); Small.Sink++; }

    // Not certain: there are two ways to the same callee.
    [MethodImpl(Once)] public static void Either(int n) { Small.Sink += Small.Value(0) + Small.Other(n); }
    [MethodImpl(Once)] public static void OrNone(int n) { Small.Sink += Small.Value(0) + Bottom.Stop(n); }

    // The callee leaves its frame to the method that it calls last.
    [MethodImpl(Once)] public static void Tail(int n) { Small.Sink += Small.Last(n) + 1; }

    // What a delegate calls is not in IL.
    [MethodImpl(Once)] public static void Delegate(int n) { Small.Calls(Bottom.Stop, n); Small.Sink++; }
}
