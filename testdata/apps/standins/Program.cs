// Locks on objects that stand for something else: types, methods, assemblies, delegates, strings. Of each a thread
// holds the lock, and another one waits for it.
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Standins;

class Repo
{
    [MethodImpl(MethodImplOptions.Synchronized)]
    public static void Save(ManualResetEventSlim held) => Program.Hold(held);

    public void Load(int order) { }

    public void Ready() { }
}

static class Program
{
    static readonly ManualResetEvent never = new(false);
    static readonly Action instance = new Repo().Ready;
    static readonly Action shared = Static, both = instance + shared;
    static readonly MethodInfo load = typeof(Repo).GetMethod("Load");

    static void Main(string[] args)
    {
        App.Start(args);
        Pair("type", held => { lock (typeof(Dictionary<string, Repo>)) Hold(held); });
        Pair("synchronized", Repo.Save);
        Pair("text", held => { lock ("config") Hold(held); });
        Pair("method", held => { lock (load) Hold(held); });
        Pair("assembly", held => { lock (typeof(Program).Assembly) Hold(held); });
        Pair("module", held => { lock (typeof(Program).Module) Hold(held); });
        Pair("instance", held => { lock (instance) Hold(held); });
        Pair("static", held => { lock (shared) Hold(held); });
        Pair("both", held => { lock (both) Hold(held); });
        App.Line("READY");
        App.WaitForEnd();
        App.Exit(0);
    }

    static void Static() { }

    static void Pair(string name, Action<ManualResetEventSlim> take)
    {
        var held = new ManualResetEventSlim();
        App.Background(name + "-holds", () => take(held));
        held.Wait();
        Thread waits = App.Background(name + "-waits", () => take(held));
        while ((waits.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Sleep(1);
    }

    public static void Hold(ManualResetEventSlim held)
    {
        held.Set();
        never.WaitOne();
    }
}
