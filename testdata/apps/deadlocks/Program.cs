// Deadlocks of every kind, side by side in one process, and sets of threads that look like deadlocks but are none. The
// program knows of each set who is in it, and says so when it is asked: see Zoo.Truths. With --healthy there are no
// deadlocks, but threads that contend for locks as fast as they can. With --collect objects are moved all the time.
using System.Threading;
using Common;

namespace Deadlocks;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        ThreadPool.SetMinThreads(64, 64);
        if (App.Flag("healthy"))
            Healthy.Start();
        else
        {
            Monitors.Fill();
            Others.Fill();
            Mutexes.Fill();
            Tasks.Fill();
            Ended.Fill();
            Harmless.Fill();
            Permits.Fill();
            Permitted.Fill();
            Zoo.Settle();
            if (App.Flag("collect")) Zoo.Collect();
        }
        App.Answer = _ => Zoo.Truths();
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}
