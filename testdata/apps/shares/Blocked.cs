// Methods that wait, each in another way. Feeder ends the waits that have no time-out
// of their own.
using System;
using System.Collections.Generic;
using System.Net;
using System.Net.Sockets;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Shares;

static class Blocked
{
    static int Milliseconds(long ns) => (int)(ns / 1_000_000);

    /// <summary>What a thread does that has used its share of CPU time.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Rest(long ns) => Thread.Sleep(Milliseconds(ns));

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Sleep(long ns) => Thread.Sleep(Milliseconds(ns));

    static readonly object gate = new();

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void MonitorWait(long ns)
    {
        lock (gate) Monitor.Wait(gate, Milliseconds(ns));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void TaskWait(long ns)
    {
        var done = new TaskCompletionSource();
        Feeder.After(ns, done.SetResult);
        done.Task.Wait();
    }

    static readonly SemaphoreSlim semaphore = new(0);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Semaphore(long ns)
    {
        Feeder.After(ns, () => semaphore.Release());
        semaphore.Wait();
    }

    static readonly (Socket Receiver, Socket Sender) sockets = Connect();

    static (Socket, Socket) Connect()
    {
        using var listener = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listener.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listener.Listen(1);
        var sender = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        sender.Connect(listener.LocalEndPoint);
        return (listener.Accept(), sender);
    }

    static readonly byte[] one = new byte[1];

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Receive(long ns)
    {
        Feeder.After(ns, () => sockets.Sender.Send(one));
        if (sockets.Receiver.Receive(new byte[1]) != 1) App.Fail("receive");
    }

    static readonly (int Read, int Write) pipe = Native.Pipe();

    /// <summary>A blocking read in native code.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void ReadPipe(long ns)
    {
        Feeder.After(ns, () => Native.shares_write(pipe.Write));
        Native.Read(pipe.Read);
    }

    static readonly object wanted = new();

    /// <summary>Has the lock that Contend wants.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Hold(long ns)
    {
        lock (wanted) Thread.Sleep(Milliseconds(ns));
    }

    /// <summary>Waits for a lock for as long as others have it.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Contend(long ns)
    {
        lock (wanted) { }
    }
}

/// <summary>Does what it is asked to do at a later time.</summary>
static class Feeder
{
    static readonly PriorityQueue<Action, long> queue = new();

    public static void Start() => App.Background("feeder", Run);

    public static void After(long ns, Action action)
    {
        lock (queue)
        {
            queue.Enqueue(action, Meter.Now + ns);
            Monitor.Pulse(queue);
        }
    }

    static void Run()
    {
        while (!App.Ending) Next()?.Invoke();
    }

    static Action Next()
    {
        lock (queue)
        {
            if (!queue.TryPeek(out _, out long at))
            {
                Monitor.Wait(queue, 100);
                return null;
            }
            long left = at - Meter.Now;
            if (left <= 0) return queue.Dequeue();
            Monitor.Wait(queue, (int)(left / 1_000_000) + 1);
            return null;
        }
    }
}
