// The busy workers. Each computes the same thing again and again and compares:
// whoever stops threads and reads memory from outside must not change a result.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.ExceptionServices;
using System.Text;
using System.Threading;
using Common;

namespace Scenarios;

/// <summary>
/// One busy worker: Round must return Expected, every time. What is OnlyByName uses
/// so much CPU time that it would keep the others from their work.
/// </summary>
sealed record Worker(string Name, Func<long> Round, long Expected, int Threads = 1, bool OnlyByName = false);

sealed class Load
{
    readonly List<Running> running = new();

    sealed class Running
    {
        public Worker Worker;
        public Thread Thread;
        public long Rounds;
        public string Bad;
    }

    /// <summary>Starts the workers of these names; without any all, those of the storm only if it is wanted.</summary>
    public void Start(string[] only, bool storm)
    {
        foreach (Worker w in Workers.All.Concat(Storm.All))
        {
            bool wanted = only.Length > 0 ? only.Contains(w.Name) : !w.OnlyByName && (storm || !Storm.All.Contains(w));
            if (!wanted) continue;
            for (int i = 0; i < w.Threads; i++)
            {
                var r = new Running { Worker = w };
                running.Add(r);
                r.Thread = App.Background(w.Name, () => Work(r));
            }
        }
    }

    static void Work(Running r)
    {
        try
        {
            do
            {
                long got = r.Worker.Round();
                if (got != r.Worker.Expected) r.Bad = $"{r.Worker.Name}: {got} instead of {r.Worker.Expected}";
                Interlocked.Increment(ref r.Rounds);
            }
            while (!App.Ending && r.Bad == null);
        }
        catch (Exception e)
        {
            r.Bad = $"{r.Worker.Name}: {e}".Replace('\n', ' ');
        }
    }

    /// <summary>Ends all workers; returns what went wrong, or nothing.</summary>
    public string Stop()
    {
        App.AskToEnd();
        var bad = new StringBuilder();
        foreach (Running r in running)
        {
            if (!r.Thread.Join(20_000)) bad.Append($"{r.Worker.Name}: does not end; ");
            else if (r.Bad != null) bad.Append(r.Bad).Append("; ");
            else if (r.Rounds == 0) bad.Append($"{r.Worker.Name}: no round; ");
            App.Line($"LOAD {r.Worker.Name} {Interlocked.Read(ref r.Rounds)}");
        }
        Counts.NoteUnloaded();
        Counts.Print();
        if (Counts.Damaged != null) bad.Append(Counts.Damaged);
        return bad.ToString();
    }
}
