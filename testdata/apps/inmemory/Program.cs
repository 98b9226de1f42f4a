// Blocks in a method, in a copy of itself that is loaded from memory, or in itself.
//
//   --stdin, --max-seconds: see App.cs
//   --image FILE: the assembly to load from memory; without it the program itself blocks
//   --pdb FILE: the PDB to load with it; without it none is
//
// The command "line" on stdin is answered with the line that the method is at, as the compiler knows it:
// the name of the file and the number.
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace InMemory;

public static class Program
{
    static readonly ManualResetEventSlim blocked = new(false);
    static string line;

    static void Main(string[] args)
    {
        App.Start(args);
        ThreadStart body = () => Wait(Announce);
        if (App.Flag("image"))
        {
            byte[] symbols = App.Flag("pdb") ? File.ReadAllBytes(App.Text("pdb", "")) : null;
            Assembly copy = Assembly.Load(File.ReadAllBytes(App.Text("image", "")), symbols);
            MethodInfo wait = copy.GetType("InMemory.Program").GetMethod("Wait");
            body = () => wait.Invoke(null, [(Action<string>)Announce]);
        }
        App.Background("in memory", body);
        blocked.Wait();
        App.Answer = command => command == "line" ? [line] : [];
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Announce(string where)
    {
        line = where;
        blocked.Set();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Wait(Action<string> announce)
    {
        announce(Here());
        Thread.Sleep(Timeout.Infinite);
    }

    static string Here([CallerFilePath] string file = "", [CallerLineNumber] int line = 0) => $"{file} {line + 1}";
}
