// A thread that waits for an event, in a method that has done so often: .NET 10 inlines ManualResetEventSlim.Wait into
// that.
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace HotWait;

static class Program
{
    const int Waits = 20_000, Rounds = 10;

    static readonly ManualResetEventSlim gate = new();
    static volatile bool hot;
    static int count;

    static void Main(string[] args)
    {
        App.Start(args);
        var setter = new Thread(() => { while (!hot) gate.Set(); }) { IsBackground = true };
        setter.Start();
        for (int round = 0; round < Rounds; round++)
        {
            for (int i = 0; i < Waits / Rounds; i++)
            {
                gate.Reset();
                Once();
            }
            Thread.Sleep(100); // the JIT has time to compile it
        }
        hot = true;
        setter.Join();
        gate.Reset();
        var last = new Thread(Once) { IsBackground = true, Name = "hot" };
        last.Start();
        while ((last.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Sleep(1);
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Once()
    {
        gate.Wait();
        count++;
    }
}
