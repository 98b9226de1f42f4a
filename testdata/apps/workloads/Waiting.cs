using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Workloads;

/// <summary>Programs that wait for most of the time.</summary>
static class Waiting
{
    static readonly List<Timer> timers = [];

    public static void Timers(int threads)
    {
        for (int i = 0; i < 10 * threads; i++) timers.Add(new Timer(_ => Work.Count(), null, i, 50 + i));
    }

    public static void Delays(int threads)
    {
        for (int i = 0; i < 100 * threads; i++)
        {
            int pause = 20 + i % 100;
            _ = Task.Run(async () =>
            {
                for (; !App.Ending; Work.Count()) await Task.Delay(pause);
            });
        }
    }

    /// <summary>More work at once than the pool has threads, which it has done long before the next.</summary>
    public static void Bursts(int threads) => Work.Threads("bursts", 1, _ =>
    {
        for (int i = 0; i < 50 * threads; i++) ThreadPool.QueueUserWorkItem(_ => Thread.SpinWait(2000));
        Thread.Sleep(500);
    });

    /// <summary>Threads that look every now and then whether there is something to do.</summary>
    public static void Polling(int threads) => Work.Threads("poller", threads, _ => Thread.Sleep(100));

    /// <summary>A thread that blocks on a task which lasts as long as the program, as Main does in many.</summary>
    public static void Host(int threads)
    {
        App.Background("host", () => RunAsync().GetAwaiter().GetResult());
        App.Background("joiner", () => App.Background("joined", () => App.WaitForEnd()).Join());
        Delays(Math.Max(1, threads / 10));
    }

    static async Task RunAsync()
    {
        using var timer = new PeriodicTimer(TimeSpan.FromMilliseconds(40));
        while (!App.Ending && await timer.WaitForNextTickAsync()) Work.Count();
    }

    /// <summary>A thread that waits for another program.</summary>
    public static void Child(int threads) => Work.Threads("runner", threads, _ =>
    {
        using Process child = Process.Start(new ProcessStartInfo("sleep", "3") { RedirectStandardOutput = true });
        child.StandardOutput.ReadToEnd();
        child.WaitForExit();
    });

    static TcpListener Listen()
    {
        var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        return listener;
    }

    /// <summary>Connections on which nothing comes, as those of a pool or of clients that push seldom.</summary>
    public static void IdleConnections(int threads)
    {
        TcpListener listener = Listen();
        for (int i = 0; i < 10 * threads; i++)
        {
            var client = new TcpClient();
            client.Connect((IPEndPoint)listener.LocalEndpoint);
            TcpClient server = listener.AcceptTcpClient();
            _ = server.GetStream().ReadAsync(new byte[64]).AsTask();
            _ = client.GetStream().ReadAsync(new byte[64]).AsTask();
        }
        Work.Count();
    }

    public static void Echo(int threads)
    {
        TcpListener listener = Listen();
        _ = Task.Run(async () =>
        {
            while (true) _ = ServeAsync(await listener.AcceptTcpClientAsync());
        });
        for (int i = 0; i < threads; i++) _ = Task.Run(() => TalkAsync((IPEndPoint)listener.LocalEndpoint));
    }

    static async Task ServeAsync(TcpClient client)
    {
        var buffer = new byte[256];
        NetworkStream stream = client.GetStream();
        for (int n; (n = await stream.ReadAsync(buffer)) > 0;) await stream.WriteAsync(buffer.AsMemory(0, n));
    }

    static async Task TalkAsync(IPEndPoint server)
    {
        using var client = new TcpClient();
        await client.ConnectAsync(server);
        var buffer = new byte[256];
        for (; !App.Ending; Work.Count())
        {
            await client.GetStream().WriteAsync(buffer.AsMemory(0, 100));
            await client.GetStream().ReadExactlyAsync(buffer, 0, 100);
        }
    }

    /// <summary>A thread for each connection, as in old servers, and clients that say something now and then.</summary>
    public static void Receivers(int threads)
    {
        TcpListener listener = Listen();
        var clients = new List<TcpClient>();
        for (int i = 0; i < threads; i++)
        {
            var client = new TcpClient();
            client.Connect((IPEndPoint)listener.LocalEndpoint);
            clients.Add(client);
            Socket socket = listener.AcceptTcpClient().Client;
            App.Background($"receiver-{i}", () =>
            {
                var buffer = new byte[256];
                while (socket.Receive(buffer) > 0) Work.Count();
            });
        }
        App.Background("talker", () =>
        {
            for (; !App.Ending; Thread.Sleep(200))
                foreach (TcpClient client in clients) client.Client.Send([1, 2, 3]);
        });
    }

    public static void Files(int threads) => Work.Threads("files", threads, number =>
    {
        string file = Path.GetTempFileName();
        try
        {
            File.WriteAllBytes(file, new byte[64 * 1024]);
            if (File.ReadAllBytes(file).Length != 64 * 1024) Work.Wrong = file;
        }
        finally
        {
            File.Delete(file);
        }
        Thread.Sleep(3 + number);
    });
}
