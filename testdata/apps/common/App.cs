// What all test programs share: options, the line protocol on stdout, and the
// watchdogs that end a program.
using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;

namespace Common;

/// <summary>Command line options, stdout, and the end of the process.</summary>
static class App
{
    static readonly Dictionary<string, string> options = new();
    static readonly Stream stdout = Console.OpenStandardOutput();
    static readonly object stdoutLock = new();
    static readonly ManualResetEventSlim end = new(false);

    /// <summary>
    /// Reads "--name value" and "--flag", prints the PID line and starts the
    /// watchdogs: --stdin ends the program at end of file, and --max-seconds
    /// (default 3600) in any case.
    /// </summary>
    public static void Start(string[] args)
    {
        for (int i = 0; i < args.Length; i++)
        {
            if (!args[i].StartsWith("--")) Fail($"unexpected argument: {args[i]}");
            bool hasValue = i + 1 < args.Length && !args[i + 1].StartsWith("--");
            options[args[i][2..]] = hasValue ? args[++i] : "";
        }
        int maxSeconds = Int("max-seconds", 3600);
        Background("watchdog", () =>
        {
            Thread.Sleep(TimeSpan.FromSeconds(maxSeconds));
            Console.Error.WriteLine($"ended after --max-seconds {maxSeconds}");
            _exit(124);
        });
        if (Flag("stdin"))
        {
            Background("stdin", () =>
            {
                using Stream stdin = Console.OpenStandardInput();
                var buffer = new byte[256];
                for (int n; (n = stdin.Read(buffer)) > 0;) Commands(buffer.AsSpan(0, n));
                end.Set();
            });
        }
        Line($"PID {Environment.ProcessId}");
    }

    /// <summary>
    /// The program's answer to a line on stdin. Each of its lines is written as
    /// "ANSWER line", and ANSWERED after the last.
    /// </summary>
    public static volatile Func<string, IEnumerable<string>> Answer = _ => [];

    static readonly StringBuilder command = new();

    static void Commands(ReadOnlySpan<byte> bytes)
    {
        foreach (byte b in bytes)
        {
            if (b != '\n')
            {
                command.Append((char)b);
                continue;
            }
            var text = new StringBuilder();
            foreach (string line in Answer(command.ToString())) text.Append("ANSWER ").Append(line).Append('\n');
            Line(text.Append("ANSWERED").ToString());
            command.Clear();
        }
    }

    public static bool Flag(string name) => options.ContainsKey(name);

    public static string Text(string name, string otherwise) => options.GetValueOrDefault(name, otherwise);

    public static int Int(string name, int otherwise) =>
        options.TryGetValue(name, out string text) ? int.Parse(text) : otherwise;

    /// <summary>Writes whole lines to stdout at once.</summary>
    public static void Line(string text)
    {
        byte[] bytes = Encoding.UTF8.GetBytes(text + "\n");
        lock (stdoutLock)
        {
            stdout.Write(bytes);
            stdout.Flush();
        }
    }

    /// <summary>Set once the program should end.</summary>
    public static bool Ending => end.IsSet;

    /// <summary>Waits for the end: of stdin, or of the given time.</summary>
    public static void WaitForEnd(TimeSpan? limit = null) => end.Wait(limit ?? Timeout.InfiniteTimeSpan);

    public static void AskToEnd() => end.Set();

    /// <summary>Ends the process, whatever its other threads are blocked in.</summary>
    public static void Exit(int code)
    {
        Background("exit", () => { Thread.Sleep(1000); _exit(code); });
        Environment.Exit(code);
    }

    public static void Fail(string why)
    {
        Console.Error.WriteLine(why);
        Exit(2);
    }

    public static Thread Background(string name, ThreadStart body, int stackBytes = 0)
    {
        var thread = new Thread(body, stackBytes) { Name = name, IsBackground = true };
        thread.Start();
        return thread;
    }

    [DllImport("libc")] static extern void _exit(int code);
}
