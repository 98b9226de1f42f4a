// Threads that stop at every kind of place of a source text. A comment // @name says that the line is
// on the stack of the thread that stops at the place of that name.
//
//   --warm N         first call each place N times, so that its methods are compiled anew
//   --after N        call each place N times while threads are stopped there
//   --without NAME   stop at all places but that one
//
// To "callers" it answers a line for each place: its name, and the line and file in which Here.Stop
// was called.
using System;
using System.Linq;
using System.Threading;
using Common;
using Lines;

App.Start(args);
App.Answer = _ => Here.Callers();
// With many pool threads at once no place waits for another one's.
ThreadPool.SetMinThreads(32, 32);
Again(App.Int("warm", 0));
string without = App.Text("without", "");
foreach (Place p in Catalog.All.Where(p => p.Name != without)) Here.Begin(p);
Here.AwaitAll();
Again(App.Int("after", 0));
int end = Here.StopUntilEnd("top-level"); // @top-level
App.Line("RESULT OK");
App.Exit(end - 1);

static void Again(int times)
{
    if (times == 0) return;
    // Each round may have another tier; those in the background need some time.
    for (int round = 0; round < 4; round++)
    {
        foreach (Place p in Catalog.All) Here.Pass(p, times);
        Thread.Sleep(150);
    }
}
