// Works from the first instruction of Main on, and says how much: for tests of
// recordings that begin when a program begins.
//
//   --work MS      how much CPU time Main uses before anything else, default 200
//   --late NAME    then there is a thread that is called "early" and has this name
//                  once it is told "rename" on stdin; it works all the time
//   --start        then starts itself as another process, which works in a method
//                  of its own, and waits for it
//   --code N       exit code, default 0
//   --seconds N, --stdin: goes on for so long, or until stdin ends
//
// On stdout, after what App says of itself:
//
//   COUNT worked-us <microseconds of CPU time in Main's first call>
using System;
using System.Diagnostics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Begin;

static class Program
{
    static int Main(string[] args)
    {
        // App.Start prints the PID: the work comes before anything else.
        long worked = Array.IndexOf(args, "--started") >= 0 ? WorkAsChild(Work(args)) : WorkAsParent(Work(args));
        App.Start(args);
        App.Line($"COUNT worked-us {worked / 1000}");
        if (App.Text("late", "") != "") App.Background("early", Rename);
        if (App.Flag("start")) StartChild(args);
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        if (seconds > 0 || App.Flag("stdin")) App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.Line("RESULT OK");
        return App.Int("code", 0);
    }

    static long Work(string[] args)
    {
        int at = Array.IndexOf(args, "--work");
        return at < 0 ? 200 : long.Parse(args[at + 1]);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long WorkAsParent(long ms) => Use(ms * 1_000_000) + 0;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long WorkAsChild(long ms) => Use(ms * 1_000_000) + 0;

    /// <summary>Uses so many nanoseconds of CPU time; returns how many it really used.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Use(long nanoseconds)
    {
        long begin = Cpu(), used;
        while ((used = Cpu() - begin) < nanoseconds) Mix();
        return used;
    }

    static ulong state = 88172645463325252;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Mix()
    {
        ulong x = state;
        for (int i = 0; i < 20_000; i++)
        {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        state = x;
    }

    static void Rename()
    {
        App.Answer = command =>
        {
            if (command == "rename") renamed = true;
            while (!done) Thread.Sleep(1);
            return [];
        };
        while (!renamed && !App.Ending) Mix();
        Thread.CurrentThread.Name = App.Text("late", "");
        done = true;
        while (!App.Ending) Mix();
    }

    static volatile bool renamed, done;

    static void StartChild(string[] args)
    {
        string[] child =
        [
            typeof(Program).Assembly.Location, "--started",
            "--work", Work(args).ToString(), "--seconds", App.Text("seconds", "0"),
        ];
        using var p = Process.Start(Environment.ProcessPath, child);
        p.WaitForExit();
        App.Line($"COUNT child {p.Id}");
    }

    [StructLayout(LayoutKind.Sequential)]
    struct Timespec
    {
        public long Seconds, Nanoseconds;
    }

    const int ThreadCpuTime = 3; // CLOCK_THREAD_CPUTIME_ID

    static long Cpu()
    {
        clock_gettime(ThreadCpuTime, out Timespec t);
        return t.Seconds * 1_000_000_000 + t.Nanoseconds;
    }

    [DllImport("libc")] static extern int clock_gettime(int clock, out Timespec t);
}
