// Threads that compute all the time below stacks as servers have them: 30 to 70
// frames of middleware, rules, generics and the framework. They count what they have
// done, so that the cost of recording them can be measured.
//
//   --threads N   default 50
//   --stdin, --max-seconds: see App.cs
//
// The command "units" on stdin is answered with
//
//   UNITS <units of work since the start> <CLOCK_MONOTONIC ns>
//
// At the end it checks that each unit gave the result of the first one of its order.
using System;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using Common;

namespace Busy;

static class Program
{
    // One cache line each: no false sharing.
    const int Apart = 16;
    static long[] units;
    static volatile string wrong;

    static void Main(string[] args)
    {
        App.Start(args);
        int threads = App.Int("threads", 50);
        units = new long[(threads + 1) * Apart];
        var workers = new Thread[threads];
        for (int i = 0; i < threads; i++)
        {
            int me = i;
            workers[i] = App.Background($"busy-{i}", () => Work(me));
        }
        Thread.Sleep(3000); // until hot methods have been recompiled
        App.Answer = _ => [$"UNITS {Units()} {Stopwatch.GetTimestamp()}"];
        App.Line("READY");
        App.WaitForEnd();
        foreach (Thread t in workers) t.Join();
        App.Line(wrong == null ? "RESULT OK" : "RESULT BAD " + wrong);
        App.Exit(wrong == null ? 0 : 1);
    }

    static long Units() => Enumerable.Range(1, units.Length / Apart - 1).Sum(i => Volatile.Read(ref units[i * Apart]));

    static void Work(int me)
    {
        const int Orders = 16;
        var service = new Service(me);
        var expected = new long?[Orders];
        while (!App.Ending)
        {
            for (int i = 0; i < Orders; i++)
            {
                long price = service.Handle(new Order(i, me));
                if ((expected[i] ??= price) != price)
                    wrong = $"thread {me}, order {i}: {price} instead of {expected[i]}";
                units[(me + 1) * Apart]++;
            }
        }
    }
}
