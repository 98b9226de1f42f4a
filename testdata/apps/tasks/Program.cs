// Async methods that await each other in every way there is: chains that wait for ever, and chains whose inner
// method runs, or blocks its thread. The program knows who awaits whom, because each method notes its name in an
// AsyncLocal, and says so when it is asked.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Tasks;

static class Program
{
    /// <summary>Chains of one level of each kind, and of several.</summary>
    static IEnumerable<string[]> Chains()
    {
        string[] names = [.. Levels.ByName.Keys];
        foreach (string name in names) yield return [name];
        yield return [];
        yield return names;
        var random = new Random(7);
        for (int i = 0; i < 10; i++) yield return [.. Enumerable.Range(0, 6).Select(_ => names[random.Next(names.Length)])];
    }

    /// <summary>Has each level be left again, so many times, so that the runtime may optimise it.</summary>
    static async Task Warm(int rounds)
    {
        string[] stay = ["all", "all-results"]; // they never end
        for (int i = 0; i < rounds; i++)
        {
            foreach (string name in Levels.ByName.Keys.Except(stay)) await Running.Root(new Plan([name], () => Task.Delay(1)));
        }
    }

    static void Main(string[] args)
    {
        App.Start(args);
        ThreadPool.SetMinThreads(128, 128);
        if (App.Flag("warm")) Warm(App.Int("warm", 60)).Wait();
        if (App.Flag("running")) Running.Fill(Chains(), _ => Thread.Sleep(Timeout.Infinite));
        if (App.Flag("raising")) Running.Fill(Chains(), Raising.Events);
        if (App.Flag("delegates")) Running.Delegates();
        if (App.Flag("queue")) Busy.Queue(20);
        if (App.Flag("busy")) Busy.Fill(App.Int("loops", 2), App.Int("busy", 1000));
        if (App.Flag("collect")) Running.Collect(App.Int("pause", 0));
        if (App.Flag("suspended")) Suspended.Fill(Chains(), App.Int("suspended", 1));
        if (App.Flag("permits")) Suspended.Permits();
        if (App.Flag("ticking")) Suspended.Tick();
        if (App.Flag("queued")) Queued.Fill(App.Int("queued", 100));
        App.Answer = command => command.Split(' ') is ["throughput", var time]
            ? [$"{Raising.Throughput(int.Parse(time))}"]
            : Running.Truths().Concat(Suspended.Truths());
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}
