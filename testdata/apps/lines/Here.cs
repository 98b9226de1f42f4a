// Where threads stop, and say what is on their stacks.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using Common;

namespace Lines;

static class Here
{
    [ThreadStatic] static bool passing;
    [ThreadStatic] static string place;
    static readonly ManualResetEvent never = new(false);
    static readonly Dictionary<string, string> callers = [];
    static readonly HashSet<string> awaited = [];

    /// <summary>
    /// Says what the stack is, and blocks. A place on a thread of its own need not say its name.
    /// </summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Stop(string name = null, [CallerLineNumber] int line = 0, [CallerFilePath] string file = "")
    {
        if (passing) return 1;
        Announce(name, line, file);
        never.WaitOne();
        return 1;
    }

    /// <summary>Stop for the main thread, which goes on when the program ends.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int StopUntilEnd(string name, [CallerLineNumber] int line = 0, [CallerFilePath] string file = "")
    {
        Announce(name, line, file);
        App.Line("READY");
        App.WaitForEnd();
        return 1;
    }

    /// <summary>
    /// Prints the STACK block (see testdata/apps/scenarios), whose first frame is the caller's, and keeps the
    /// line from which that was called, as the compiler knows it.
    /// </summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Announce(string name, int line, string file)
    {
        name ??= place;
        var text = new StringBuilder($"STACK {name} {gettid()} {Environment.CurrentManagedThreadId}\n");
        foreach (StackFrame frame in new StackTrace(1, true).GetFrames()) FrameText.Append(text, frame);
        App.Line(text.Append("END").ToString());
        lock (callers)
        {
            callers[name] = $"{name} {line} {file}";
            Monitor.PulseAll(callers);
        }
    }

    /// <summary>One line for each place: its name, and the line and file that Stop was called from.</summary>
    public static IEnumerable<string> Callers()
    {
        lock (callers) return [.. callers.Values];
    }

    /// <summary>Calls a place some times without stopping there.</summary>
    public static void Pass(Place p, int times)
    {
        if (p.Elsewhere || p.Once) return;
        passing = true;
        for (int i = 0; i < times; i++) p.Body();
        passing = false;
    }

    public static void Begin(Place p)
    {
        if (!awaited.Add(p.Name)) throw new ArgumentException(p.Name + " is there twice");
        if (p.Elsewhere) p.Body();
        else App.Background(p.Name, () => Enter(p), 1 << 20);
    }

    static void Enter(Place p)
    {
        place = p.Name;
        p.Body();
        App.Fail($"{p.Name} was left");
    }

    /// <summary>Returns once every place was announced. The threads block a moment later.</summary>
    public static void AwaitAll()
    {
        lock (callers)
        {
            while (callers.Count < awaited.Count)
            {
                if (Monitor.Wait(callers, TimeSpan.FromSeconds(60))) continue;
                awaited.ExceptWith(callers.Keys);
                App.Fail("nobody gets to " + string.Join(", ", awaited));
            }
        }
    }

    [DllImport("libc")] static extern int gettid();
}
