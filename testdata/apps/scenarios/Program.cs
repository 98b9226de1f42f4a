// The main test program: every way of being on a stack that we know of.
//
//   --only a,b      only these blocked scenarios
//   --no-blocked    none of them
//   --finalizer     also block the finalizer thread
//   --busy N        run the busy workers for N seconds (--load is the same)
//   --workers a,b   only these of them
//   --storm         and those that make everything else happen (Storm.cs)
//   --assembly FILE where this assembly is, for a single-file application
//   --stdin, --max-seconds N: see App.cs
//
// Protocol on stdout:
//
//   PID <pid>
//   STACK <scenario> <os thread id> <managed thread id>
//   <tab>one line of Environment.StackTrace, deepest first
//   <tab><tab>one frame of System.Diagnostics.StackTrace: see Here.Announce
//   END
//   READY                       all scenarios are blocked, all workers run
//   LOAD <worker> <rounds>      at the end, for each busy worker
//   COUNT <what> <how often>    likewise, what the storm made happen
//   RESULT OK | RESULT BAD ...  exit code 0 or 1
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using Common;

namespace Scenarios;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        string[] only = Names("only"), workers = Names("workers");
        int busy = App.Int("busy", App.Int("load", 0));

        if (!App.Flag("no-blocked"))
        {
            foreach (Scenario s in Catalog.All)
            {
                bool wanted = only.Length > 0 ? only.Contains(s.Name) : s.Flag == null || App.Flag(s.Flag);
                if (wanted) Here.Start(s);
            }
            Here.WaitUntilBlocked();
        }
        var load = new Load();
        if (App.Flag("storm")) Counts.Start();
        if (busy > 0) load.Start(workers, App.Flag("storm"));
        App.Line("READY");

        App.WaitForEnd(busy > 0 ? TimeSpan.FromSeconds(busy) : null);
        string bad = load.Stop();
        App.Line(bad == "" ? "RESULT OK" : "RESULT BAD " + bad);
        App.Exit(bad == "" ? 0 : 1);
    }

    static string[] Names(string option) => App.Text(option, "").Split(',', StringSplitOptions.RemoveEmptyEntries);
}
