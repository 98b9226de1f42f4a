using System;
using System.Collections.Generic;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Shop;

/// <summary>What is around the program is the trouble.</summary>
static class Outside
{
    static readonly List<object> kept = new();
    static volatile object newest;

    /// <summary>Threads wait for the answer of a server that gives none: --port says where it listens.</summary>
    public static void Remote()
    {
        for (int i = 0; i < 4; i++) App.Background($"client-{i}", () => Ask(App.Int("port", 0)));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ask(int port)
    {
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Connect(new IPEndPoint(IPAddress.Loopback, port));
        socket.Send("price?\n"u8);
        socket.Receive(new byte[64]);
    }

    [DllImport("libc")]
    static extern int setrlimit(int resource, in Limit limit);

    struct Limit { public ulong Soft, Hard; }

    /// <summary>Files are opened and not closed, up to the limit.</summary>
    public static void Descriptors()
    {
        setrlimit(7, new Limit { Soft = 400, Hard = 400 });
        string path = typeof(Outside).Assembly.Location;
        try
        {
            while (true) kept.Add(File.OpenRead(path));
        }
        catch (IOException)
        {
        }
    }

    [DllImport("libc"), SuppressGCTransition]
    static extern int usleep(uint microseconds);

    /// <summary>A thread sleeps in native code without telling the runtime, so that no collection can begin.</summary>
    public static void Holdout()
    {
        App.Background("sensor", () => { while (true) Poll(); });
        Thread.Sleep(200);
        for (int i = 0; i < 3; i++)
        {
            App.Background($"orders-{i}", () => { while (true) { newest = new byte[1000]; } });
        }
        App.Background("collects", () => { while (true) { GC.Collect(); Thread.Sleep(10); } });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Poll() => usleep(60_000_000);
}
