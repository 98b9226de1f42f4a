using System;
using System.Diagnostics;
using System.IO;
using System.IO.Pipes;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;

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
        Task received = asynchronous.ReceiveAsync(new byte[8]).ContinueWith(_ => { });
        peers[^1].Send([1]);
        received.Wait();
        Zoo.Waits(new() { Thread = "socket", Kind = "io", Target = later }, () => asynchronous.Receive(new byte[8]));

        Pipes();
        UnixSockets();
        GC.KeepAlive(listener);
    }

    /// <summary>The other end of a pipe is in this process, in another one, or not there yet.</summary>
    static void Pipes()
    {
        var pipe = new AnonymousPipeServerStream(PipeDirection.In);
        var client = (long)pipe.ClientSafePipeHandle.DangerousGetHandle();
        Zoo.Waits(new() { Thread = "~pipe", Kind = "io",
            Target = $"read {Link(client)} ← this process fd {client}" }, () => pipe.ReadByte());

        var full = new AnonymousPipeServerStream(PipeDirection.Out);
        client = (long)full.ClientSafePipeHandle.DangerousGetHandle();
        Zoo.Waits(new() { Thread = "~pipe-full", Kind = "io",
            Target = $"write {Link(client)} → this process fd {client}" }, () => full.Write(new byte[1 << 20]));

        // It ends with this process, which has the other end of its input.
        var child = new Process { StartInfo = new("cat") { RedirectStandardInput = true, RedirectStandardOutput = true } };
        child.Start();
        Zoo.Waits(new() { Thread = "~pipe-child", Kind = "io",
            Target = $"read {new FileInfo($"/proc/{child.Id}/fd/1").LinkTarget} ← cat ({child.Id}) fd 1" },
            () => child.StandardOutput.Read());

        string fifo = Path.Combine(Path.GetTempPath(), $"clrsnap-waits-{Environment.ProcessId}");
        Process.Start("mkfifo", fifo).WaitForExit();
        Zoo.Waits(new() { Thread = "~open", Kind = "io", Target = $"open {fifo}" }, () => File.OpenRead(fifo));
        Zoo.AtEnd = () => File.Delete(fifo);
    }

    static string Link(long fd) => new FileInfo($"/proc/self/fd/{fd}").LinkTarget;

    static void UnixSockets()
    {
        string path = Path.Combine(Path.GetTempPath(), $"clrsnap-waits-{Environment.ProcessId}.socket");
        var end = new UnixDomainSocketEndPoint(path);
        var listener = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
        listener.Bind(end);
        listener.Listen();
        Socket client = new(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
        client.Connect(end);
        Socket server = listener.Accept();
        File.Delete(path);
        peers = [.. peers, client, server];
        Zoo.Waits(new() { Thread = "~unix", Kind = "io", Target = $"recv unix {path} → this process fd {server.Handle}" },
            () => client.Receive(new byte[8]));
        Zoo.Waits(new() { Thread = "~unix-accept", Kind = "io", Target = $"accept unix {path} listening" },
            () => listener.Accept());
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
