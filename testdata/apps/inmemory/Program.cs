// Loads a copy of itself from memory, with its PDB, and blocks in a method of that copy.
//
//   --stdin, --max-seconds: see App.cs
//   --pdb FILE: the PDB to load with it; none without FILE
//
// It prints the line that the blocked method is at, as the compiler knows it: "LINE file number".
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

    static void Main(string[] args)
    {
        App.Start(args);
        byte[] image = File.ReadAllBytes(App.Text("image", typeof(Program).Assembly.Location));
        string pdb = App.Text("pdb", "");
        byte[] symbols = pdb == "" ? null : File.ReadAllBytes(pdb);
        MethodInfo wait = Assembly.Load(image, symbols).GetType("InMemory.Program").GetMethod("Wait");
        App.Background("in memory", () => wait.Invoke(null, [(Action<string>)Announce]));
        blocked.Wait();
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Announce(string line)
    {
        App.Line(line);
        blocked.Set();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Wait(Action<string> announce)
    {
        announce("LINE " + Here());
        Thread.Sleep(Timeout.Infinite);
    }

    static string Here([CallerFilePath] string file = "", [CallerLineNumber] int line = 0) => $"{file} {line + 1}";
}
