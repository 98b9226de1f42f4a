// A web service with background services, one of which is ill in a way that --of names. Its answers tell the truth.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace Depot;

static class Program
{
    static int begun;

    static async Task Main(string[] args)
    {
        App.Start(args);
        ThreadPool.SetMinThreads(64, 8);
        WebApplicationBuilder builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders(); // stdout is for the protocol
        builder.WebHost.UseUrls("http://127.0.0.1:0");
        builder.Services.Configure<HostOptions>(o =>
        {
            o.BackgroundServiceExceptionBehavior = BackgroundServiceExceptionBehavior.Ignore;
            o.ShutdownTimeout = Timeout.InfiniteTimeSpan;
        });
        switch (App.Text("of", ""))
        {
            case "failed": builder.Services.AddHostedService<StockSync>(); break;
            case "done": builder.Services.AddHostedService<Migration>(); break;
            case "stop": builder.Services.AddHostedService<Exporter>(); break;
            case "deaf":
                builder.Services.AddHostedService<Beat>();
                builder.Services.AddHostedService<Pump>();
                break;
            case "start":
                builder.Services.AddHostedService<Berths>();
                builder.Services.AddHostedService<Tides>();
                break;
            case "starts": builder.Services.AddHostedService<Index>(); break;
        }
        WebApplication app = builder.Build();
        app.MapGet("/sleep/{id:int}", (int id) => { Begin(); Pack(); return $"{id}\n"; });
        app.MapGet("/block/{id:int}", (int id) => { Begin(); Ask(); return $"{id}\n"; });
        app.MapGet("/nap/{id:int}", (int id) => { Begin(); Thread.Sleep(100); return $"{id}\n"; });
        if (App.Text("of", "") is "start" or "starts")
            _ = Task.Factory.StartNew(() =>
            {
                App.WaitForEnd();
                App.Line("RESULT OK");
                App.Exit(0);
            }, TaskCreationOptions.LongRunning);
        await app.StartAsync();
        string url = app.Urls.First();
        App.Answer = command => command == "url" ? [url] : [$"BEGUN {Volatile.Read(ref begun)}"];
        await Task.WhenAny(Services.Settled.Task, Task.Delay(Timeout.Infinite));
        App.Line("READY");
        if (App.Text("of", "") is "stop" or "deaf")
        {
            await app.WaitForShutdownAsync();
            return;
        }
        await Task.Factory.StartNew(() => App.WaitForEnd(), TaskCreationOptions.LongRunning);
        App.Line("RESULT OK");
        App.Exit(0); // requests may hang, and are not waited for
    }

    static void Begin() => Interlocked.Increment(ref begun);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Pack() => Thread.Sleep(Timeout.Infinite);

    static readonly TaskCompletionSource<int> answer = new();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ask() => GC.KeepAlive(answer.Task.Result);
}

static class Services
{
    /// <summary>The service of --of has come to where it stays; without a service at once.</summary>
    public static readonly TaskCompletionSource Settled = new();

    static Services()
    {
        if (App.Text("of", "") is not ("failed" or "done")) Settled.SetResult();
    }
}

/// <summary>Fails, and the host goes on.</summary>
sealed class StockSync : BackgroundService
{
    protected override async Task ExecuteAsync(CancellationToken stop)
    {
        await Task.Yield();
        await Fetch();
    }

    static async Task Fetch()
    {
        await Task.Delay(10);
        Services.Settled.SetResult();
        throw new InvalidOperationException("the warehouse does not answer");
    }
}

/// <summary>Healthy: does its work once.</summary>
sealed class Migration : BackgroundService
{
    protected override async Task ExecuteAsync(CancellationToken stop)
    {
        await Task.Delay(10);
        Services.Settled.SetResult();
    }
}

/// <summary>Does not start: waits for a service that starts later.</summary>
sealed class Berths : IHostedService
{
    public async Task StartAsync(CancellationToken stop)
    {
        await Task.Delay(10, stop);
        App.Line("READY");
        await Tides.First.Task.WaitAsync(stop);
    }

    public Task StopAsync(CancellationToken stop) => Task.CompletedTask;
}

sealed class Tides : IHostedService
{
    public static readonly TaskCompletionSource First = new();

    public Task StartAsync(CancellationToken stop)
    {
        First.SetResult();
        return Task.CompletedTask;
    }

    public Task StopAsync(CancellationToken stop) => Task.CompletedTask;
}

/// <summary>Healthy: takes long to start, and moves.</summary>
sealed class Index : IHostedService
{
    public async Task StartAsync(CancellationToken stop)
    {
        App.Line("READY");
        for (int i = 0; i < 1_000_000; i++) await Task.Delay(10, stop);
    }

    public Task StopAsync(CancellationToken stop) => Task.CompletedTask;
}

/// <summary>Does not stop.</summary>
sealed class Exporter : BackgroundService
{
    readonly TaskCompletionSource exported = new();

    protected override Task ExecuteAsync(CancellationToken stop) => Task.Delay(Timeout.Infinite, stop);

    public override async Task StopAsync(CancellationToken cancellationToken)
    {
        await Flush();
        await base.StopAsync(cancellationToken);
    }

    async Task Flush() => await exported.Task;
}

/// <summary>Does not hear that the host stops.</summary>
sealed class Pump : BackgroundService
{
    readonly Channel<int> parcels = Channel.CreateUnbounded<int>();

    protected override async Task ExecuteAsync(CancellationToken stop)
    {
        await foreach (int parcel in parcels.Reader.ReadAllAsync()) GC.KeepAlive(parcel);
    }
}

/// <summary>Stops at once.</summary>
sealed class Beat : BackgroundService
{
    protected override async Task ExecuteAsync(CancellationToken stop)
    {
        while (true) await Task.Delay(50, stop);
    }
}
