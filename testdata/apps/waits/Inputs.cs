using System;
using System.IO;
using System.IO.Pipes;
using System.Net;
using System.Net.Sockets;
using System.Threading;

namespace Waits;

/// <summary>Threads that wait for input, in the kernel.</summary>
static class Inputs
{
    public static void Fill()
    {
        var listener = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listener.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listener.Listen();
        var accepting = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        accepting.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        accepting.Listen();
        Zoo.Waits(new() { Thread = "~accept", Kind = "io", Target = $"accept tcp {accepting.LocalEndPoint} listening" },
            () => accepting.Accept());

        Zoo.Waits(new() { Thread = "~receive", Kind = "io", Target = Receive(listener, out Socket receiving) },
            () => receiving.Receive(new byte[8]));
        string target = Receive(listener, out Socket streaming);
        var stream = new NetworkStream(streaming);
        Zoo.Waits(new() { Thread = "~stream", Kind = "io", Target = target }, () => stream.Read(new byte[8]));

        var datagrams = new Socket(AddressFamily.InterNetwork, SocketType.Dgram, ProtocolType.Udp);
        datagrams.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        Zoo.Waits(new() { Thread = "~datagram", Kind = "io", Target = $"recv udp {datagrams.LocalEndPoint}" },
            () => { EndPoint from = new IPEndPoint(IPAddress.Any, 0); datagrams.ReceiveFrom(new byte[8], ref from); });

        // A socket that was used asynchronously does not block in the kernel any more.
        string later = Receive(listener, out Socket asynchronous);
        _ = asynchronous.ReceiveAsync(new byte[8]).ContinueWith(_ => { });
        peers[^1].Send([1]);
        Thread.Sleep(100);
        Zoo.Waits(new() { Thread = "socket", Kind = "io", Target = later }, () => asynchronous.Receive(new byte[8]));

        var pipe = new AnonymousPipeServerStream(PipeDirection.In);
        Zoo.Waits(new() { Thread = "~pipe", Kind = "io" }, () => pipe.ReadByte());
        GC.KeepAlive(listener);
    }

    static Socket[] peers = [];

    /// <summary>Connects a socket, and returns what a wait for its input is called.</summary>
    static string Receive(Socket listener, out Socket connected)
    {
        connected = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        connected.Connect(listener.LocalEndPoint);
        peers = [.. peers, listener.Accept()];
        return $"recv tcp {connected.LocalEndPoint} → {connected.RemoteEndPoint} established";
    }
}
