// SpinLocks that are held and spun for. The threads' names say who holds which SpinLock: "holds-SET" and "spins-SET-N".
using System;
using System.Threading;
using Common;

namespace Spinlocks;

sealed class Till(bool tracks)
{
    public int Opened;
    SpinLock gate = new(tracks);

    public int Waiters => gate.IsHeld ? 1 : 0;

    public void Enter() { bool taken = false; gate.Enter(ref taken); }
}

static class Program
{
    static SpinLock counter = new(true);

    static void Enter() { bool taken = false; counter.Enter(ref taken); }

    /// <summary>A thread takes a SpinLock, and keeps it; others spin for it.</summary>
    static void Set(string name, Action enter, bool ends = false)
    {
        using var held = new ManualResetEventSlim();
        Thread holder = App.Background("holds-" + name, () => { enter(); held.Set(); if (!ends) Thread.Sleep(-1); });
        held.Wait();
        if (ends) holder.Join();
        for (int i = 0; i < 2; i++) App.Background($"spins-{name}-{i}", () => { enter(); App.Exit(1); });
    }

    static void Main(string[] args)
    {
        App.Start(args);
        Till tracked = new(true), untracked = new(false), ended = new(true);
        Set("static", Enter);
        Set("tracked", tracked.Enter);
        Set("untracked", untracked.Enter);
        Set("ended", ended.Enter, true);
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}
