// The threads that must come to the same result in every round.
using System;
using System.Text;
using System.Threading;
using Common;

namespace Ordeal;

/// <summary>One or more threads. Each does rounds until the program ends, and at least so many.</summary>
sealed class Worker(string name, int threads, Func<long> round, long expected, int least = 1)
{
    readonly Thread[] running = new Thread[threads];
    readonly long[] rounds = new long[threads];
    volatile string wrong;

    public static void StartAll(Worker[] workers)
    {
        foreach (Worker w in workers)
        {
            for (int i = 0; i < w.running.Length; i++)
            {
                int me = i;
                w.running[i] = App.Background(w.Name, () => w.Work(me));
            }
        }
    }

    string Name => name;

    void Work(int me)
    {
        try
        {
            while (wrong == null && (rounds[me] < least || !App.Ending))
            {
                long got = round();
                if (got != expected) wrong = $"{name}: {got} instead of {expected}";
                rounds[me]++;
            }
        }
        catch (Exception e)
        {
            wrong = $"{name}: {e}".Replace('\n', ' ');
        }
    }

    /// <summary>Ends all workers; returns what went wrong, or nothing.</summary>
    public static string StopAll(Worker[] workers)
    {
        App.AskToEnd();
        var bad = new StringBuilder();
        foreach (Worker w in workers)
        {
            for (int i = 0; i < w.running.Length; i++)
            {
                if (!w.running[i].Join(60_000)) w.wrong ??= $"{w.Name}: does not end";
                App.Line($"LOAD {w.Name} {w.rounds[i]}");
            }
            if (w.wrong != null) bad.Append(w.wrong).Append("; ");
        }
        return bad.ToString();
    }
}
