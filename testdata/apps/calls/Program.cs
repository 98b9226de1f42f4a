// Calls of HttpClient to a server that does not answer.
//
//   --server HOST:PORT   the server, of HTTP/1 and of HTTP/2 without TLS
//   --connections N      how many connections of HTTP/1 there may be for "get" and "send", 4
//   --between N          how many objects are allocated before each call, 0
//   --stdin, --max-seconds: see App.cs
//
// Commands on stdin; N calls are made, to the path /KIND/ID, with numbers from 1 on:
//
//   get N      async calls
//   send N     calls that block a thread each
//   stream N   async calls, of which the body is read as it comes, with connections of their own
//   two N      async calls by HTTP/2, on a connection that the program makes, with a stream of its own around the socket's
//   socket N   WebSockets, of which nothing comes
//   end ID     ends a call
//   begun      the path of each call that has not ended, and CLOCK_MONOTONIC in ns when it is about to begin
//   under      likewise, when the call is under way, of those that no thread waits for
//   collect    a garbage collection
//   slide MS   from now on what lies between calls is let go, a little every MS, so that compacting garbage collections
//              move all calls again and again; the answer is how often that will be
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Http;
using System.Net.Sockets;
using System.Net.WebSockets;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Calls;

static class Program
{
    static readonly ConcurrentDictionary<int, Call> calls = new();
    static readonly Queue<byte[]> between = new();
    static int last;

    static void Main(string[] args)
    {
        App.Start(args);
        App.Answer = Answer;
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static IEnumerable<string> Answer(string command)
    {
        string[] words = command.Split(' ');
        switch (words[0])
        {
            case "begun":
                return calls.Values.Select(c => $"{c.Path} {c.Begun}").ToArray();
            case "under":
                return calls.Values.Where(c => c.Under != 0).Select(c => $"{c.Path} {c.Under}").ToArray();
            case "end":
                if (calls.TryGetValue(int.Parse(words[1]), out Call call)) call.Cancel.Cancel();
                return [];
            case "collect":
                GC.Collect();
                return [];
            case "slide":
                App.Background("slide", () => Slide(int.Parse(words[1])));
                return [$"{between.Count}"];
        }
        for (int i = int.Parse(words[1]); i > 0; i--) Begin(words[0]);
        return [];
    }

    static void Begin(string kind)
    {
        for (int i = App.Int("between", 0); i > 0; i--) between.Enqueue(new byte[200]);
        int id = ++last;
        var call = new Call(kind, id);
        calls[id] = call;
        if (kind == "send") App.Background("send", () => Run(() => { call.Send(); return Task.CompletedTask; }, id).Wait());
        else
        {
            _ = Run(call.Make, id);
            call.Under = Stopwatch.GetTimestamp();
        }
    }

    static void Slide(int pause)
    {
        for (; between.TryDequeue(out _); Thread.Sleep(pause)) GC.Collect(2, GCCollectionMode.Forced, true, true);
    }

    static async Task Run(Func<Task> make, int id)
    {
        try
        {
            await make();
        }
        catch (Exception e) when (e is OperationCanceledException or IOException or HttpRequestException
            or WebSocketException) { }
        calls.TryRemove(id, out _);
    }
}

/// <summary>One call.</summary>
sealed class Call(string kind, int id)
{
    static readonly HttpClient few = Client(App.Int("connections", 4)), many = Client(int.MaxValue), own = Client(int.MaxValue, Connect);

    public readonly CancellationTokenSource Cancel = new();
    public readonly long Begun = Stopwatch.GetTimestamp();
    public long Under; // when it was certainly under way; 0: that is not known
    public readonly string Path = $"/{kind}/{id}";

    static HttpClient Client(int connections,
        Func<SocketsHttpConnectionContext, CancellationToken, ValueTask<Stream>> connect = null) =>
        new(new SocketsHttpHandler
        {
            MaxConnectionsPerServer = connections, UseProxy = false, ConnectCallback = connect,
        })
        {
            BaseAddress = new Uri($"http://{App.Text("server", "127.0.0.1:9")}/"), Timeout = TimeSpan.FromMinutes(20),
        };

    static async ValueTask<Stream> Connect(SocketsHttpConnectionContext context, CancellationToken token)
    {
        var socket = new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        await socket.ConnectAsync(context.DnsEndPoint, token);
        return new Counted(new NetworkStream(socket, true));
    }

    HttpRequestMessage Message() => new(HttpMethod.Get, Path + "?key=secret");

    public Task Make() => kind switch { "get" => Get(), "stream" => Stream(), "socket" => WebSocket(), _ => Two() };

    async Task WebSocket()
    {
        using var socket = new ClientWebSocket();
        await socket.ConnectAsync(new Uri($"ws://{App.Text("server", "127.0.0.1:9")}{Path}?key=secret"), Cancel.Token);
        await socket.ReceiveAsync(new byte[16], Cancel.Token);
    }

    async Task Get()
    {
        using HttpResponseMessage answer = await few.SendAsync(Message(), Cancel.Token);
    }

    public void Send()
    {
        using HttpResponseMessage answer = few.Send(Message(), Cancel.Token);
    }

    async Task Stream()
    {
        using HttpResponseMessage answer =
            await many.SendAsync(Message(), HttpCompletionOption.ResponseHeadersRead, Cancel.Token);
        using Stream body = await answer.Content.ReadAsStreamAsync();
        await body.CopyToAsync(System.IO.Stream.Null, Cancel.Token);
    }

    async Task Two()
    {
        HttpRequestMessage message = Message();
        message.Version = HttpVersion.Version20;
        message.VersionPolicy = HttpVersionPolicy.RequestVersionExact;
        using HttpResponseMessage answer = await own.SendAsync(message, Cancel.Token);
    }
}

/// <summary>A stream around another one, as who makes connections may have.</summary>
sealed class Counted(Stream stream) : Stream
{
    long read;

    public override bool CanRead => true;
    public override bool CanSeek => false;
    public override bool CanWrite => true;
    public override long Length => read;
    public override long Position { get => read; set => throw new NotSupportedException(); }
    public override void Flush() => stream.Flush();
    public override Task FlushAsync(CancellationToken token) => stream.FlushAsync(token);
    public override int Read(byte[] to, int at, int count) => stream.Read(to, at, count);
    public override void Write(byte[] from, int at, int count) => stream.Write(from, at, count);
    public override long Seek(long offset, SeekOrigin origin) => throw new NotSupportedException();
    public override void SetLength(long length) => throw new NotSupportedException();

    public override async ValueTask<int> ReadAsync(Memory<byte> to, CancellationToken token = default)
    {
        int n = await stream.ReadAsync(to, token);
        read += n;
        return n;
    }

    public override ValueTask WriteAsync(ReadOnlyMemory<byte> from, CancellationToken token = default) =>
        stream.WriteAsync(from, token);

    protected override void Dispose(bool disposing)
    {
        if (disposing) stream.Dispose();
        base.Dispose(disposing);
    }
}
