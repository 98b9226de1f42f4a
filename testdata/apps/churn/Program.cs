// Locks that are taken, inflated, deflated and replaced, by threads that come and go, while a collector moves
// everything. The program keeps a journal of who entered and left what: see Journal.cs.
//
//   --journal FILE  where the journal is mapped
//   --threads N     that work at the same time, default 16
//   --seconds N     ends after N seconds; --stdin, --max-seconds: see App.cs
using System;
using System.Threading;
using Common;

namespace Churn;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        Journal.Open(App.Text("journal", ""));
        Gates.Fill();
        for (int i = 0; i < App.Int("threads", 16); i++)
        {
            int seed = i + 1;
            App.Background($"lane-{i}", () => Lane(seed));
        }
        for (int i = 0; i < 3; i++)
        {
            int seed = -i - 1;
            App.Background($"joins-{i}", () => Joins(seed));
        }
        App.Background("collects", Collect);
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.Line("RESULT OK");
        App.Exit(0);
    }

    /// <summary>One worker after the other, none of which lives for long.</summary>
    static void Lane(int seed)
    {
        var random = new Random(seed);
        while (!App.Ending)
        {
            int times = random.Next(2, 40), next = random.Next();
            var worker = new Thread(() => Work(new Random(next), times)) { IsBackground = true, Name = "works" };
            worker.Start();
            while (!worker.Join(50) && !App.Ending) { }
        }
    }

    /// <summary>Waits for threads to end, again and again.</summary>
    static void Joins(int seed)
    {
        var random = new Random(seed);
        while (!App.Ending)
        {
            int id = 0, rest = random.Next(0, 15);
            using var started = new ManualResetEventSlim();
            var worker = new Thread(() =>
            {
                id = Journal.gettid();
                Journal.Write(Event.Entering, Gates.Join | id, 0);
                started.Set();
                Thread.Sleep(rest);
                Journal.Write(Event.Failed, Gates.Join | id, 0); // the end of what is certainly its life
            }) { IsBackground = true, Name = "rests" };
            worker.Start();
            started.Wait();
            Journal.Write(Event.Entering, Gates.Join | id, 0);
            worker.Join();
            Journal.Write(Event.Failed, Gates.Join | id, 0);
        }
    }

    static void Work(Random random, int times)
    {
        for (int i = 0; i < times && !App.Ending; i++)
        {
            Gates.Random(random).Pass(random, 0);
            if (random.Next(10) == 0) Thread.Sleep(random.Next(3));
        }
    }

    static readonly object[] kept = new object[4000];

    /// <summary>Puts garbage between the objects of others, and has it collected in every way.</summary>
    static void Collect()
    {
        var random = new Random(1);
        for (int n = 1; !App.Ending; n++)
        {
            for (int i = 0; i < 300; i++) kept[random.Next(kept.Length)] = new byte[random.Next(600)];
            if (n % 12 == 0) GC.Collect(random.Next(3), GCCollectionMode.Forced, true, random.Next(2) == 0);
            Thread.Sleep(random.Next(8));
        }
    }
}
