// Spends known shares of its time in known methods: running and waiting, in managed
// and in native code. A slice lasts until a clock says so. The program measures how
// long each really took.
//
//   --native FILE   the library made of shares.c
//   --stdin, --max-seconds: see App.cs
//
// The command "totals" on stdin is answered with what was spent since the start:
//
//   NOW <CLOCK_MONOTONIC ns>
//   THREAD <name> <os thread id> <cpu ns> <wall ns>
//   SHARE <thread> <method> <cpu ns> <wall ns>          callees included
//
// The methods of the thread "pool" run on any thread of the thread pool. The program
// uses about 1.2 CPUs.
using System;
using System.Linq;
using System.Threading;
using Common;

namespace Shares;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        Native.Load(App.Text("native", ""));
        Feeder.Start();
        foreach (Worker w in Workers) w.Start();
        Pool.Start();
        Thread.Sleep(1500); // until hot methods have been recompiled
        App.Answer = command => command == "totals"
            ? new[] { $"NOW {Meter.Now}" }.Concat(Worker.Report()).Concat(Pool.Report())
            : [];
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static Slice Rest(double often) => new("Shares.Blocked.Rest", Blocked.Rest, often);

    static Worker[] Workers =>
    [
        new("managed",
        [
            new("Shares.Cpu.Alpha", ns => Cpu.Alpha("generic", ns), .15),
            new("Shares.Cpu.Beta", Cpu.Beta, .09),
            new("Shares.Cpu.Gamma", Cpu.Gamma, .06),
            Rest(.70),
        ]),
        new("native",
        [
            new("Shares.Native.Spin", Native.Spin, .08),
            new("Shares.Native.CallBack", Native.CallBack, .08),
            Rest(.84),
        ]),
        new("blocked",
        [
            new("Shares.Blocked.Sleep", Blocked.Sleep, 1),
            new("Shares.Blocked.MonitorWait", Blocked.MonitorWait, 1),
            new("Shares.Blocked.TaskWait", Blocked.TaskWait, 1),
            new("Shares.Blocked.Semaphore", Blocked.Semaphore, 1),
            new("Shares.Blocked.Receive", Blocked.Receive, 1),
            new("Shares.Blocked.ReadPipe", Blocked.ReadPipe, 1),
            new("Shares.Native.Sleep", Native.Sleep, 1),
            new("Shares.Native.Poll", Native.Poll, 1),
        ]),
        new("holder", [new("Shares.Blocked.Hold", Blocked.Hold, 1), Rest(1)]),
        new("contender", [new("Shares.Blocked.Contend", Blocked.Contend, 2), Rest(1)]),
        new("half", [new("Shares.Cpu.Half", Cpu.Half, 1), new("Shares.Blocked.Sleep", Blocked.Sleep, 1)]),
        new("waits",
        [
            new("Shares.Cpu.Blink", Cpu.Blink, 1, 200_000, 600_000),
            new("Shares.Blocked.Sleep", Blocked.Sleep, 1, 20_000_000, 60_000_000),
        ]),
        new("thrower", [new("Shares.Cpu.Throw", Cpu.Throw, .1), Rest(.9)]),
    ];
}
