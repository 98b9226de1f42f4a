// Threads whose time is spent on known source lines, in known shares. The command "lines" on stdin is answered
// with
//
//   LINE <what> <number of the line>
//
// for each of them. A thread named "plugin" runs the same code in an assembly that can be unloaded.
using System;
using System.Linq;
using System.Collections.Concurrent;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace HotLines;

public static class Program
{
    static readonly ConcurrentDictionary<string, int> lines = new();

    static void Main(string[] args)
    {
        App.Start(args);
        App.Background("work", () => Work(() => App.Ending));
        App.Background("later", () => Later().GetAwaiter().GetResult());
        App.Background("garbage", Garbage);
        if (App.Flag("plugin")) App.Background("plugin", Plugin);
        App.Answer = _ => lines.Select(l => $"LINE {l.Key} {l.Value}");
        while (lines.Count < 5) Thread.Sleep(1);
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static bool Mark(string what, [CallerLineNumber] int line = 0) => lines.TryAdd(what, line);

    const int Unit = 100_000;

    /// <summary>Three quarters of the time belong to one line, the rest to another.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static ulong Work(Func<bool> ending)
    {
        ulong x = 1;
        while (!ending())
        {
            x = Burn(x, 3 * Unit); Mark("heavy");
            x = Burn(x, Unit); Mark("light");
            Thread.Yield();
        }
        return x;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Burn(ulong x, int n)
    {
        Mark("burn", Here() + 1);
        for (int i = 0; i < n; i++) x = x * 6364136223846793005 + 1442695040888963407;
        return x;
    }

    static int Here([CallerLineNumber] int line = 0) => line;

    /// <summary>Goes on in a state machine.</summary>
    static async Task Later()
    {
        ulong x = 1;
        while (!App.Ending)
        {
            await Task.Delay(1);
            x = Burn(x, Unit); Mark("later");
        }
    }

    static byte[] garbage;

    static void Garbage()
    {
        Mark("garbage", AllocateLine());
        while (!App.Ending)
        {
            for (int i = 0; i < 100; i++) Allocate(8000);
            Thread.Sleep(1);
        }
    }

    static int AllocateLine() => Here() + 3;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Allocate(int n) => garbage = new byte[n];

    static void Plugin()
    {
        var context = new AssemblyLoadContext("plugin", isCollectible: true);
        var program = context.LoadFromAssemblyPath(typeof(Program).Assembly.Location).GetType(typeof(Program).FullName);
        program.GetMethod(nameof(Work)).Invoke(null, [(Func<bool>)(() => App.Ending)]);
    }
}
