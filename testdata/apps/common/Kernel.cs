// What the kernel knows of this process's threads.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Text;
using System.Threading;

namespace Common;

static class Kernel
{
    /// <summary>
    /// Waits until all threads whose names begin with one of these are blocked, and have had no CPU between two looks.
    /// ThreadState does not say so: a thread that spins at first, and yields, waits for a moment in between.
    /// </summary>
    public static void AwaitBlocked(params string[] names)
    {
        string before = null, running = "";
        for (var limit = Stopwatch.StartNew(); limit.Elapsed < TimeSpan.FromMinutes(1); Thread.Sleep(20))
        {
            var now = new StringBuilder();
            running = "";
            foreach (var (name, blocked, switches) in Threads())
            {
                if (!Array.Exists(names, n => name.StartsWith(n[..Math.Min(n.Length, 15)]))) continue; // TASK_COMM_LEN
                if (!blocked) running += " " + name;
                now.AppendLine(switches);
            }
            if (running == "" && now.ToString() == before) return;
            before = now.ToString();
        }
        App.Fail($"not blocked after a minute:{(running == "" ? " they wake again and again" : running)}");
    }

    /// <summary>Whether a thread with that name is blocked.</summary>
    public static bool Blocked(string name)
    {
        foreach (var t in Threads())
            if (t.Name == name && t.Blocked) return true;
        return false;
    }

    /// <summary>All threads, and what tells whether one has had a CPU since.</summary>
    static IEnumerable<(string Name, bool Blocked, string Switches)> Threads()
    {
        foreach (string task in Directory.GetDirectories("/proc/self/task"))
        {
            string[] status;
            try { status = File.ReadAllLines(task + "/status"); }
            catch (IOException) { continue; } // it has ended
            yield return (Value(status, "Name"), Value(status, "State").StartsWith('S'),
                $"{task} {Value(status, "voluntary_ctxt_switches")} {Value(status, "nonvoluntary_ctxt_switches")}");
        }
    }

    static string Value(string[] status, string key) =>
        Array.Find(status, line => line.StartsWith(key + ":"))?[(key.Length + 1)..].Trim() ?? "";
}
