// A program that is ill in one way, which --of names, or in none. It does ordinary work besides: a few threads that
// compute a little, sleep and allocate.
using System;
using System.Collections.Generic;
using System.Threading;
using Common;

namespace Shop;

static class Program
{
    static readonly Dictionary<string, Action> ailments = new()
    {
        ["nothing"] = () => { },
        ["deadlock"] = Stuck.Deadlock,
        ["permit"] = Stuck.Permit,
        ["lost"] = Stuck.Lost,
        ["lost-token"] = Stuck.LostToken,
        ["queue"] = Stuck.Queue,
        ["reader"] = Stuck.Reader,
        ["phases"] = Stuck.Phases,
        ["licence"] = Stuck.Licence,
        ["finalizer"] = Stuck.Finalizer,
        ["pool"] = Busy.Pool,
        ["syncover"] = Busy.SyncOver,
        ["retries"] = Busy.Retries,
        ["failing"] = Busy.Failing,
        ["convoy"] = Busy.Convoy,
        ["hoard"] = Busy.Hoard,
        ["loop"] = Busy.Loop,
        ["crowd"] = Busy.Crowd,
        ["regex"] = Busy.Regex, ["compiled-regex"] = Busy.CompiledRegex, ["failed"] = Busy.Failed,
        ["throws"] = Busy.Throws,
        ["garbage"] = Busy.Garbage,
        ["remote"] = Outside.Remote,
        ["names"] = Outside.Names,
        ["descriptors"] = Outside.Descriptors,
        ["holdout"] = Outside.Holdout, ["held-up"] = Outside.HeldUp,
        ["native"] = Outside.Native,
        ["exit"] = Stuck.Exit,
        ["signal"] = Stuck.Signal,
        ["foreground"] = Stuck.Foreground,
        ["struct-keys"] = Wasteful.StructKeys,
        ["equal-hashes"] = Wasteful.EqualHashes,
        ["linq"] = Wasteful.LinqInLoop,
        ["boxes"] = Wasteful.Boxes,
        ["joins"] = Wasteful.Joins,
        ["worker"] = Fine.Worker,
        ["buffers"] = Fine.Buffers,
        ["batch"] = Fine.Batch,
        ["consumers"] = Fine.Consumers,
        ["errors"] = Fine.Errors,
        ["permits"] = Fine.Permits,
        ["messages"] = Fine.Messages,
        ["gate"] = Fine.Gate,
        ["steps"] = Fine.Steps,
        ["slow-reader"] = Fine.SlowReader,
    };

    static void Main(string[] args)
    {
        App.Start(args);
        Fine.Work();
        foreach (string of in App.Text("of", "nothing").Split(',')) ailments[of]();
        Thread.Sleep(App.Int("settle", 500));
        App.Line("READY");
        Outside.Ready.Set();
        if (App.Flag("return")) return;
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}
