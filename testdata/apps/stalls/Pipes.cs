using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>Reads and writes that wait for another process.</summary>
static class Pipes
{
    static readonly List<object> kept = [];

    /// <summary>Starts a child; the pipes of the given streams lead here.</summary>
    static Process Start(bool input, bool output, bool error, string file, params string[] args)
    {
        var info = new ProcessStartInfo(file)
        {
            RedirectStandardInput = input, RedirectStandardOutput = output, RedirectStandardError = error,
        };
        foreach (string a in args) info.ArgumentList.Add(a);
        Process child = Process.Start(info);
        kept.Add(child);
        App.Background("reaper", () => { App.WaitForEnd(); child.Kill(); });
        return child;
    }

    /// <summary>A writer of a log, to a pipe that nobody reads; twelve threads wait for room in its queue.</summary>
    public static void Log()
    {
        Process child = Start(true, false, false, "sleep", "600");
        var log = new LogQueue(child.StandardInput.BaseStream);
        for (int i = 0; i < 12; i++) App.Background($"clerk-{i}", () => { while (true) log.Enqueue(new byte[8192]); });
        log.Full.Wait();
        App.Answer = _ => [$"CHILD {child.Id}"];
    }

    sealed class LogQueue
    {
        readonly Queue<byte[]> queue = new();
        readonly Stream to;
        public readonly CountdownEvent Full = new(12);
        int blocked;

        public LogQueue(Stream to)
        {
            this.to = to;
            App.Background("log-writer", Write);
        }

        public void Enqueue(byte[] line)
        {
            lock (queue)
            {
                while (queue.Count >= 16)
                {
                    if (++blocked <= 12) Full.Signal();
                    Monitor.Wait(queue);
                }
                queue.Enqueue(line);
                Monitor.PulseAll(queue);
            }
        }

        void Write()
        {
            while (true)
            {
                byte[] line;
                lock (queue)
                {
                    while (queue.Count == 0) Monitor.Wait(queue);
                    line = queue.Dequeue();
                    Monitor.PulseAll(queue);
                }
                to.Write(line);
                to.Flush();
            }
        }
    }

    static readonly object journal = new();

    /// <summary>A thread writes under a lock that five others want.</summary>
    public static void Lock()
    {
        Process child = Start(true, false, false, "sleep", "600");
        Stream to = child.StandardInput.BaseStream;
        for (int i = 0; i < 6; i++) App.Background($"clerk-{i}", () => { while (true) Append(to); });
        App.Answer = _ => [$"CHILD {child.Id}"];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Append(Stream to)
    {
        lock (journal) Put(to);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Put(Stream to)
    {
        to.Write(new byte[8192]);
        to.Flush();
    }

    /// <summary>A thread waits for the end of a child whose output nobody reads.</summary>
    public static void Undrained()
    {
        Process child = Start(false, true, false, "yes");
        App.Background("converter", () => Convert(child));
        App.Answer = _ => [$"CHILD {child.Id}"];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Convert(Process child) => child.WaitForExit();

    public static void UndrainedAsync()
    {
        Process child = Start(false, true, false, "yes");
        kept.Add(ConvertAsync(child));
        App.Answer = _ => [$"CHILD {child.Id}"];
    }

    static async Task ConvertAsync(Process child)
    {
        await child.WaitForExitAsync();
        Console.Error.WriteLine(child.ExitCode);
    }

    /// <summary>A thread writes to a filter before it reads what comes out.</summary>
    public static void Circle()
    {
        Process child = Start(true, true, false, "cat");
        App.Background("filter", () => { while (true) Put(child.StandardInput.BaseStream); });
        App.Answer = _ => [$"CHILD {child.Id}"];
    }

    /// <summary>A thread reads the output of a child that writes errors, which nobody reads.</summary>
    public static void Errors()
    {
        Process child = Start(false, true, true, "sh", "-c", "while :; do echo nobody reads this >&2; done");
        App.Background("reader", () => Read(child));
        App.Answer = _ => [$"CHILD {child.Id}"];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Read(Process child) => child.StandardOutput.ReadToEnd();

    /// <summary>A thread writes to another .NET program, which rests.</summary>
    public static void Relay()
    {
        Process child = Start(true, true, false, Environment.ProcessPath,
            [typeof(Pipes).Assembly.Location, "--of", "rest", "--max-seconds", "300"]);
        while (child.StandardOutput.ReadLine() is string line && line != "READY") { }
        App.Background("sender", () => { while (true) Put(child.StandardInput.BaseStream); });
        App.Answer = _ => [$"CHILD {child.Id}"];
    }

    /// <summary>The program at the other end of Relay.</summary>
    public static void Rest()
    {
        App.Line("READY");
        Nap();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Nap() => Thread.Sleep(Timeout.Infinite);

    /// <summary>A thread sends to a socket of this program, which nobody reads.</summary>
    public static void Loopback()
    {
        var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        var client = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        client.Connect(listener.LocalEndpoint);
        kept.Add(listener.AcceptSocket());
        App.Background("sender", () => { while (true) Send(client); });
    }

    /// <summary>A thread writes to a pipe of this program, which nobody reads.</summary>
    public static void OwnPipe()
    {
        var reads = new System.IO.Pipes.AnonymousPipeServerStream(System.IO.Pipes.PipeDirection.In);
        var writes = new System.IO.Pipes.AnonymousPipeClientStream(System.IO.Pipes.PipeDirection.Out,
            reads.ClientSafePipeHandle);
        ends = reads;
        App.Background("sender", () => { while (true) Put(writes); });
    }

    static object ends;

    /// <summary>Each of two threads sends to the other before it reads.</summary>
    public static void BothSend()
    {
        var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        var client = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        client.Connect(listener.LocalEndpoint);
        Socket server = listener.AcceptSocket();
        App.Background("sender", () => { while (true) Send(client); });
        App.Background("answerer", () => { while (true) Send(server); });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Send(Socket client) => client.Send(new byte[8192]);

    static long taken;

    /// <summary>Healthy: a reader takes its time, and the writer waits for it, and gets on.</summary>
    public static void SlowReader()
    {
        Process child = Start(true, false, false, "sh", "-c",
            "while sleep 0.1; do dd bs=4096 count=1 status=none; done >/dev/null");
        Stream to = child.StandardInput.BaseStream;
        App.Background("sender", () => { for (; ; Interlocked.Increment(ref taken)) Put(to); });
        App.Answer = _ => [$"TAKEN {Volatile.Read(ref taken)}"];
    }

    /// <summary>Healthy: a thread reads what a child says, which is nothing.</summary>
    public static void Listener()
    {
        Process child = Start(false, true, false, "sleep", "600");
        App.Background("reader", () => Read(child));
    }

    /// <summary>Healthy: a thread waits for a child that takes its time.</summary>
    public static void Child()
    {
        Process child = Start(false, true, false, "sleep", "600");
        App.Background("waiting", () => Convert(child));
    }
}
