// What a process with an agent in it must survive, and what must end it just as it
// would end it without an agent.
//
//   --mode MODE     see below
//   --seconds N     goes on for so long, default 5; with --stdin until that ends
//   --main          the main thread dies, and not another thread
//   --stdin, --max-seconds: see App.cs
//
// These check what they compute, in rounds, until they are told to end:
//
//   faults     null references, 100,000 at least, and divisions by zero, on four threads
//   gcstress   four threads allocate and collect all the time
//   churn      threads start and end all the time: with names, without, and some
//              that native code has started
//   all        all of these, locks, and exceptions across async methods
//
//   LOAD <name> <rounds>                for each of their threads
//   RESULT OK | RESULT BAD ...          exit code 0 or 1
//
// These are READY first, and do it when stdin ends; without --stdin at once:
//
//   overflow   overflows a stack        the runtime aborts: SIGABRT, 134 to a shell
//   abort      Environment.FailFast     likewise
//   because    the same, with an exception
//   unhandled  nobody catches           likewise
//   inner      the same, with an exception that led to it
//   segv       native code reads an unmapped address: likewise
//   exit7      a thread ends the process while others allocate and throw: exit code 7
//
//   sigterm    waits for SIGTERM: exit code 143; told to end, it does with RESULT OK
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Ordeal;

static class Program
{
    static readonly Dictionary<string, Worker[]> lasting = new()
    {
        ["faults"] = Faults.Workers,
        ["gcstress"] = Garbage.Workers,
        ["churn"] = Churn.Workers,
        ["all"] = [.. Faults.Workers, .. Garbage.Workers, .. Churn.Workers, .. Mixed.Workers],
    };

    static readonly Dictionary<string, Action> fatal = new()
    {
        ["overflow"] = () => Descend(0),
        ["abort"] = () => Environment.FailFast("as it was told to"),
        ["because"] = () => Environment.FailFast("because of another", Innermost()),
        ["unhandled"] = () => throw new InvalidOperationException("thrown for nobody"),
        ["inner"] = () => { Exception first = Innermost(); throw new AggregateException("led to by another", first); },
        ["segv"] = () => strlen((nint)0xdead0000L),
        ["exit7"] = () => Environment.Exit(7),
    };

    static int Main(string[] args)
    {
        App.Start(args);
        string mode = App.Text("mode", "");
        if (lasting.TryGetValue(mode, out Worker[] workers)) return Last(workers);
        if (fatal.TryGetValue(mode, out Action end)) Die(mode, end);
        if (mode != "sigterm") App.Fail($"unknown mode: {mode}");
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        return 0;
    }

    static int Last(Worker[] workers)
    {
        Worker.StartAll(workers);
        App.Line("READY");
        App.WaitForEnd(App.Flag("stdin") ? null : TimeSpan.FromSeconds(App.Int("seconds", 5)));
        string bad = Worker.StopAll(workers);
        App.Line(bad == "" ? "RESULT OK" : "RESULT BAD " + bad);
        return bad == "" ? 0 : 1;
    }

    static void Die(string how, Action end)
    {
        if (how == "exit7") Worker.StartAll([.. Garbage.Workers, .. Mixed.Workers]);
        App.Line("READY");
        if (App.Flag("stdin")) App.WaitForEnd();
        if (App.Flag("main")) end();
        App.Background(how, () => end());
        Thread.Sleep(Timeout.Infinite);
    }

    static Exception Innermost()
    {
        try { throw new ArgumentOutOfRangeException("where", "the first of all"); }
        catch (Exception e) { return e; }
    }

    [DllImport("libc")] static extern nint strlen(nint text);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Descend(int depth) => Descend(depth + 1) + depth;
}
