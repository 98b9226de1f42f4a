// Small pieces of work for a thread that is executed one instruction at a time:
// each reaches many kinds of code in few instructions. The names are those of the
// pieces in Pieces.All.
//
//   --work NAME   repeat this piece on a thread called "stepped"
//   --gc N        meanwhile collect garbage every N milliseconds on another thread
//   --stdin, --max-seconds N: see App.cs
//
// Protocol on stdout: PID, READY, RESULT OK | RESULT BAD ... (see App.cs).
using System;
using System.Linq;
using System.Threading;
using Common;

namespace Steps;

/// <summary>One piece of work: Round must return Expected, every time.</summary>
sealed record Piece(string Name, Func<long> Round, long Expected);

static class Program
{
    static string bad = "";

    static void Main(string[] args)
    {
        App.Start(args);
        string name = App.Text("work", "");
        Piece piece = Pieces.All.FirstOrDefault(p => p.Name == name);
        if (piece == null) App.Fail($"no work called {name}");

        Thread worker = App.Background("stepped", () => Repeat(piece));
        int pause = App.Int("gc", 0);
        if (pause > 0) App.Background("collector", () => Collect(pause));
        App.Line("READY");
        App.WaitForEnd();
        if (!worker.Join(20_000)) bad = "the work does not end";
        App.Line(bad == "" ? "RESULT OK" : "RESULT BAD " + bad);
        App.Exit(bad == "" ? 0 : 1);
    }

    static void Repeat(Piece piece)
    {
        try
        {
            while (!App.Ending && bad == "")
            {
                long got = piece.Round();
                if (got != piece.Expected) bad = $"{piece.Name}: {got} instead of {piece.Expected}";
            }
        }
        catch (Exception e)
        {
            bad = $"{piece.Name}: {e}".Replace('\n', ' ');
        }
    }

    static void Collect(int pause)
    {
        for (int n = 0; !App.Ending; n++)
        {
            GC.Collect(n % 16 == 0 ? 2 : 0);
            Thread.Sleep(pause);
        }
    }
}
