// A chain of calls through assemblies that lie beside the program, to a thread that waits.
//
//   --through A,B,…  Main calls A.Work.Run, which calls B.Work.Run, and so on
//   --stdin, --max-seconds: see App.cs
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using Common;

namespace Owners;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        Action chain = Wait;
        string[] names = App.Text("through", "").Split(',', StringSplitOptions.RemoveEmptyEntries);
        for (int i = names.Length - 1; i >= 0; i--)
        {
            var run = Load(names[i]).GetType($"{names[i]}.Work", true).GetMethod("Run")
                .CreateDelegate<Action<Action>>();
            Action next = chain;
            chain = () => run(next);
        }
        chain();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    // A single-file program has no folder.
    static Assembly Load(string name)
    {
        string here = Path.GetDirectoryName(typeof(Program).Assembly.Location);
        return here is null or "" ? Assembly.Load(name) : Assembly.LoadFrom(Path.Combine(here, name + ".dll"));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wait()
    {
        App.Line("READY");
        App.WaitForEnd();
    }
}
