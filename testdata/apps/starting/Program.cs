// A thread starts another program (--program PATH), and waits in the kernel, uninterruptibly, until that program begins:
// until then the two share their memory (vfork(2)).
using System.Diagnostics;
using System.Threading;
using Common;

namespace Starting;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        var starter = new Thread(() => Begin(App.Text("program", ""))) { Name = "starter" };
        starter.Start();
        App.Line("READY");
        App.WaitForEnd();
        starter.Join();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Begin(string program)
    {
        using Process started = Process.Start(program);
        started.WaitForExit();
    }
}
