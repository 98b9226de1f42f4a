// A program of which there are other builds: with MORE there are other classes and methods before those that run, with
// FIELD there is a field more, with MOVED a method is in another class, and with BODY only the body of a method is
// longer.
using System;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Rebuilt;

#if MORE
sealed class Added
{
    public static void First(string name) => Console.WriteLine(name);
    public static int Second(int a, int b) => a + b;
}
#endif

sealed class Gate
{
    public int Number = 4;

#if FIELD
    public const int More = 5;
#endif

#if !MOVED
    public void Open() { }
#endif
}

static class Program
{
    static readonly Gate gate = new();
    static readonly ManualResetEvent never = new(false);

    static void Main(string[] args)
    {
        App.Start(args);
        using var held = new ManualResetEventSlim();
        App.Background("holder", () => Hold(held));
        held.Wait();
        Thread waiter = App.Background("waiter", Wait);
        while ((waiter.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Sleep(1);
        App.Line("READY");
        App.WaitForEnd();
        App.Exit(0);
    }

#if MOVED
    static void Open() { }
#endif

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Hold(ManualResetEventSlim held)
    {
#if BODY
        if (gate.Number == 17) Console.WriteLine("seventeen");
        if (gate.Number == 18) Console.WriteLine("eighteen");
#endif
        lock (gate)
        {
            held.Set();
            never.WaitOne();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wait()
    {
        lock (gate) Console.WriteLine(gate.Number);
    }
}
