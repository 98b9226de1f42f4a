// Where scenarios are started, say what their stack is, and block.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using Common;

namespace Scenarios;

/// <summary>One blocked thread.</summary>
/// <param name="Name">Scenario and thread name; the kernel keeps 15 bytes of it.</param>
/// <param name="Body">Runs on the scenario's own thread and never returns.</param>
/// <param name="Native">It blocks in native code, which the runtime's ThreadState does not show.</param>
/// <param name="Elsewhere">The stack is on another thread, which Body only brings about.</param>
/// <param name="Silent">There is no stack to announce.</param>
/// <param name="Flag">Runs only with this command line flag.</param>
sealed record Scenario(
    string Name, Func<int> Body, bool Native = false, bool Elsewhere = false, bool Silent = false, string Flag = null);

static class Here
{
    const int StackBytes = 4 << 20;
    static readonly List<(Scenario Scenario, string Name)> started = new();
    static readonly Dictionary<string, (int Tid, Thread Thread)> announced = new();

    /// <summary>Keeps blocked threads blocked; never set.</summary>
    public static readonly ManualResetEvent Never = new(false);

    public static void Start(Scenario s)
    {
        if (s.Name.Length > 15) throw new ArgumentException(s.Name);
        lock (announced) started.Add((s, s.Name));
        if (s.Elsewhere || s.Silent) s.Body();
        else App.Background(s.Name, () => s.Body(), StackBytes);
    }

    /// <summary>The deepest method of most scenarios: says what the stack is, and blocks.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Block()
    {
        Announce(Environment.StackTrace);
        Never.WaitOne();
        return 1;
    }

    /// <summary>Block for threads that are not the scenario's own: gives them its name.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int BlockAs(string name)
    {
        Thread.CurrentThread.Name = name;
        Announce(Environment.StackTrace, name);
        Never.WaitOne();
        return 1;
    }

    /// <summary>
    /// Prints the STACK block. The caller is the method that then blocks, and it
    /// takes Environment.StackTrace itself, so that all frames above the caller
    /// are the same now and when it is blocked.
    ///
    /// Environment.StackTrace leaves out what is marked StackTraceHidden or
    /// AggressiveInlining, and rewrites the names of state machines. The second
    /// listing does neither (FrameText.cs), with the caller first, and its offsets those of the
    /// call to Announce.
    /// </summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Announce(string stackTrace, string name = null)
    {
        name ??= Thread.CurrentThread.Name;
        int tid = gettid();
        var text = new StringBuilder($"STACK {name} {tid} {Environment.CurrentManagedThreadId}\n");
        foreach (string line in stackTrace.Split('\n')) text.Append('\t').Append(line.TrimEnd('\r')).Append('\n');
        foreach (StackFrame frame in new StackTrace(1, true).GetFrames()) FrameText.Append(text, frame);
        App.Line(text.Append("END").ToString());
        lock (announced) announced[name] = (tid, Thread.CurrentThread);
    }

    /// <summary>Returns once every scenario has announced its stack and sleeps in the kernel.</summary>
    public static void WaitUntilBlocked()
    {
        var clock = Stopwatch.StartNew();
        foreach ((Scenario s, string name) in started)
        {
            if (s.Silent) continue;
            int calm = 0;
            while (calm < 3)
            {
                calm = IsBlocked(s, name) ? calm + 1 : 0;
                if (clock.Elapsed > TimeSpan.FromSeconds(60)) App.Fail($"scenario {name} is not blocked");
                Thread.Sleep(1);
            }
        }
    }

    static bool IsBlocked(Scenario s, string name)
    {
        (int Tid, Thread Thread) a;
        lock (announced)
            if (!announced.TryGetValue(name, out a)) return false;
        if (!s.Native && (a.Thread.ThreadState & System.Threading.ThreadState.WaitSleepJoin) == 0) return false;
        string stat = File.ReadAllText($"/proc/self/task/{a.Tid}/stat");
        return stat[stat.LastIndexOf(')') + 2] == 'S';
    }

    [DllImport("libc")] static extern int gettid();
}
