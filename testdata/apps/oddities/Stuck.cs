using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.IO.Pipes;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Oddities;

/// <summary>
/// A bounded queue whose only consumer has ended: the exception was written to a log, and the thread is gone.
/// </summary>
static class Audit
{
    static readonly BlockingCollection<string> trail = new(100);

    public static void Start()
    {
        App.Background("audit-writer", Write);
        for (int i = 0; i < 6; i++) App.Background($"billing-{i}", Bill);
    }

    static void Write()
    {
        try
        {
            foreach (string line in trail.GetConsumingEnumerable())
            {
                if (Done.Count > 500) throw new IOException("No space left on device : '/var/log/audit'");
                Done.One();
            }
        }
        catch (IOException e)
        {
            Console.Error.WriteLine(e.Message);
        }
    }

    static void Bill()
    {
        for (int n = 0; ; n++)
        {
            Record($"invoice {n}");
            Thread.Sleep(2);
        }
    }

    static void Record(string line) => trail.Add(line);
}

/// <summary>The factory of a Lazy waits for work that needs the Lazy.</summary>
static class Rates
{
    static readonly Lazy<Dictionary<string, decimal>> table = new(Load);

    public static void Start()
    {
        for (int i = 0; i < 5; i++) App.Background($"pricing-{i}", Price);
    }

    static void Price()
    {
        while (true)
        {
            decimal rate = table.Value["EUR"];
            if (rate > 0) Done.One();
            Thread.Sleep(10);
        }
    }

    static Dictionary<string, decimal> Load()
    {
        var rates = new Dictionary<string, decimal> { ["EUR"] = 1m };
        Thread.Sleep(100);
        rates["USD"] = Task.Run(() => Quote("USD")).Result;
        return rates;
    }

    // A quote is relative to the table's own euro.
    static decimal Quote(string currency) => table.Value["EUR"] * currency.Length;
}

/// <summary>The callback of a timer takes longer than the timer's period, and its calls queue for a lock.</summary>
static class Poller
{
    static readonly object gate = new();
    static Timer timer;

    public static void Start() => timer = new Timer(Tick, null, 0, 100);

    static void Tick(object state)
    {
        lock (gate)
        {
            Query();
            Done.One();
        }
    }

    static void Query() => Thread.Sleep(1500);
}

/// <summary>
/// All listeners of a feed get each message under one lock, over a named pipe each. One listener does not read.
/// </summary>
static class Feed
{
    static readonly object sending = new();
    static readonly List<NamedPipeServerStream> listeners = [];
    static readonly byte[] message = new byte[4096];

    public static void Start()
    {
        string name = $"feed-{Environment.ProcessId}";
        var server = new NamedPipeServerStream(name, PipeDirection.Out, 10);
        string dll = typeof(Feed).Assembly.Location;
        Process.Start(new ProcessStartInfo(Environment.ProcessPath,
            [dll, "--kind", "listener", "--pipe", name, "--stdin"]) { RedirectStandardInput = true });
        server.WaitForConnection();
        listeners.Add(server);
        for (int i = 0; i < 8; i++) App.Background($"publisher-{i}", Publish);
    }

    static void Publish()
    {
        while (true)
        {
            Broadcast();
            Done.One();
            Thread.Sleep(20);
        }
    }

    static void Broadcast()
    {
        lock (sending)
        {
            foreach (NamedPipeServerStream listener in listeners) listener.Write(message);
        }
    }

    /// <summary>Connects, and never reads.</summary>
    public static void Listen(string name)
    {
        using var client = new NamedPipeClientStream(".", name, PipeDirection.In);
        client.Connect();
        App.WaitForEnd();
    }
}

/// <summary>
/// A client of a cache, with many questions on one connection. Its reader completes the answers, and the continuation
/// of one of them blocks on the next answer: nobody reads any more.
/// </summary>
static class CacheClient
{
    static readonly ConcurrentDictionary<int, TaskCompletionSource<int>> pending = new();
    static readonly BlockingCollection<int> connection = [];
    static int numbers;

    public static void Start()
    {
        App.Background("cache-reader", Read);
        for (int i = 0; i < 20; i++) _ = Visit();
    }

    static void Read()
    {
        foreach (int number in connection.GetConsumingEnumerable())
        {
            Thread.Sleep(1);
            if (pending.TryRemove(number, out TaskCompletionSource<int> answer)) answer.SetResult(number);
        }
    }

    static Task<int> GetAsync()
    {
        int number = Interlocked.Increment(ref numbers);
        var answer = new TaskCompletionSource<int>(); // its continuations run on the reader's thread
        pending[number] = answer;
        connection.Add(number);
        return answer.Task;
    }

    static async Task Visit()
    {
        while (true)
        {
            int basket = await GetAsync();
            if (basket > 1000) Total();
            Done.One();
            await Task.Delay(10);
        }
    }

    // Somebody had no time to make this method async.
    static int Total() => GetAsync().Result;
}
