// Threads that wait in every way there is, for ever. The program knows of each what it waits for, and says so
// when it is asked: see Zoo.Truths. With --collect their objects are moved all the time.
using System;
using System.Threading;
using Common;

namespace Waits;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        Monitors.Fill();
        Locks.Fill();
        Semaphores.Fill();
        Handles.Fill();
        Tasks.Fill();
        ReadersWriters.Fill();
        Inputs.Fill();
        Fields.Fill();
        Zoo.Settle();
        if (App.Flag("collect")) Zoo.Collect();
        App.Answer = _ => Zoo.Truths();
        App.Line("READY");
        App.WaitForEnd();
        Zoo.AtEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}
