using System;
using System.Buffers;
using System.Collections.Generic;
using System.IO.Pipelines;
using System.Net;
using System.Net.Http;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Oddities;

/// <summary>
/// Healthy: frames over pipes, some of them larger than a pipe. The reader looks at each part, so that the writer goes
/// on.
/// </summary>
static class Gateway
{
    static readonly List<Task> work = [];

    public static void Start()
    {
        for (int i = 0; i < 12; i++)
        {
            var pipe = new Pipe();
            work.Add(Receive(pipe.Writer, i));
            work.Add(Decode(pipe.Reader));
        }
    }

    static async Task Receive(PipeWriter writer, int device)
    {
        for (int n = 1; ; n++)
        {
            int size = n < 200 + 10 * device ? 2000 : 200_000;
            var part = new byte[1000];
            for (int left = size; left > 0; left -= part.Length)
            {
                part[^1] = (byte)(left <= part.Length ? '\n' : 'x');
                await writer.WriteAsync(part);
            }
            await Task.Delay(5);
        }
    }

    static async Task Decode(PipeReader reader)
    {
        while (true)
        {
            ReadResult result = await reader.ReadAsync();
            ReadOnlySequence<byte> buffer = result.Buffer;
            SequencePosition? end = buffer.PositionOf((byte)'\n');
            if (end == null)
            {
                reader.AdvanceTo(buffer.Start, buffer.End);
                continue;
            }
            Done.One();
            reader.AdvanceTo(buffer.GetPosition(1, end.Value));
        }
    }
}

/// <summary>
/// Cursors of a store, each with a permit. Who has found the row that was looked for leaves the cursor alone, and the
/// permit is not given back.
/// </summary>
static class Archive
{
    static readonly SemaphoreSlim cursors = new(8, 8);
    static readonly List<Task> work = [];

    public static void Start()
    {
        for (int i = 0; i < 15; i++) work.Add(Search(i));
    }

    static async IAsyncEnumerable<int> Rows()
    {
        await cursors.WaitAsync();
        try
        {
            for (int row = 0; row < 50; row++)
            {
                if (row % 10 == 0) await Task.Delay(5);
                yield return row;
            }
        }
        finally
        {
            cursors.Release();
        }
    }

    static async Task Search(int searcher)
    {
        for (int n = 0; ; n++)
        {
            int found = n % 20 == 19 ? await First(30 + searcher) : await All();
            if (found >= 0) Done.One();
            await Task.Delay(20);
        }
    }

    static async Task<int> All()
    {
        int count = 0;
        await foreach (int row in Rows()) count++;
        return count;
    }

    static async Task<int> First(int wanted)
    {
        IAsyncEnumerator<int> e = Rows().GetAsyncEnumerator();
        while (await e.MoveNextAsync())
        {
            if (e.Current == wanted) return wanted; // without DisposeAsync
        }
        return -1;
    }
}

/// <summary>
/// Two connections at most to a server that takes its time: forty callers share them.
/// </summary>
static class Weather
{
    static readonly HttpClient client = new(new SocketsHttpHandler { MaxConnectionsPerServer = 2 });
    static readonly List<Task> work = [];

    public static void Start()
    {
        var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        _ = Accept(listener);
        string url = $"http://{listener.LocalEndpoint}/forecast";
        for (int i = 0; i < 40; i++) work.Add(Show(url));
    }

    static async Task Show(string url)
    {
        while (true)
        {
            if ((await Forecast(url)).Length > 0) Done.One();
        }
    }

    static async Task<string> Forecast(string url) => await client.GetStringAsync(url);

    // The server, with 500 ms for each answer.
    static async Task Accept(TcpListener listener)
    {
        while (true) _ = Serve(await listener.AcceptSocketAsync());
    }

    static async Task Serve(Socket connection)
    {
        var buffer = new byte[4096];
        byte[] answer = Encoding.ASCII.GetBytes("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nrain");
        while (await connection.ReceiveAsync(buffer) > 0)
        {
            await Task.Delay(500);
            await connection.SendAsync(answer);
        }
    }
}

/// <summary>Loops of Parallel.ForEach on the thread pool, whose bodies block: nothing else gets a worker.</summary>
static class Importer
{
    static readonly List<Task> work = [];

    public static void Start()
    {
        for (int i = 0; i < 6; i++) work.Add(Task.Run(Import));
        App.Background("visitors", () =>
        {
            while (true)
            {
                ThreadPool.QueueUserWorkItem(_ => Done.One());
                Thread.Sleep(10);
            }
        });
    }

    static void Import()
    {
        while (true) Parallel.ForEach(Rows(), Store);
    }

    static IEnumerable<int> Rows()
    {
        for (int i = 0; i < 5000; i++) yield return i;
    }

    static void Store(int row) => Thread.Sleep(200);
}
