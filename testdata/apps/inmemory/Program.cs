// Blocks in a method, in a copy of itself that is loaded from memory, or in itself.
//
//   --stdin, --max-seconds: see App.cs
//   --image FILE: the assembly to load from memory; without it the program itself blocks
//   --pdb FILE: the PDB to load with it; without it none is
//   --library FILE: shop.c, compiled, in which another thread blocks
//
// The command "line" on stdin is answered with the line that the method is at, as the compiler knows it:
// the name of the file and the number.
using System;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
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
        if (App.Flag("library"))
        {
            NativeLibrary.SetDllImportResolver(typeof(Program).Assembly,
                (_, _, _) => NativeLibrary.Load(App.Text("library", "")));
            App.Background("native", Call);
            Thread.Sleep(100); // until it is there, more or less
        }
        App.Answer = command => command == "line" ? [line] : [];
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    [DllImport("shop")]
    static extern void shop_wait(int x);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Call() => shop_wait(1);

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
