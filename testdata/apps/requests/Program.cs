// A web service on Kestrel whose requests hang, in several ways, until they are told to go on. It answers HTTP/1 on one
// port of the loopback interface, and HTTP/2 without TLS on another.
//
//   --clock none|activity|timestamp   what the server notes when a request begins: nothing; an Activity, as it does if
//                                     anything may be logged; a timestamp as well, as if information is logged
//   --upstream HOST:PORT              a server that is called by /upstream
//   --connections N                   how many connections to it there may be, 2
//   --stdin, --max-seconds: see App.cs
//
// Paths: Hanging.cs; /quick/ID answers at once. Commands on stdin:
//
//   urls        the addresses: of HTTP/1, of HTTP/2
//   begun       of each request that hangs: its number, and CLOCK_MONOTONIC in ns at its beginning
//   gone        the numbers of requests of /left and /answered whose RequestAborted is cancelled
//   closed      likewise, whose connection is closed
//   go ID       let a request go on; it is answered with the number of those that hang
//   collect     a garbage collection
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Common;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace Requests;

static class Program
{
    static async Task Main(string[] args)
    {
        App.Start(args);
        ThreadPool.SetMinThreads(64, 8);
        WebApplicationBuilder builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders(); // stdout is for the protocol
        string clock = App.Text("clock", "activity");
        if (clock != "none") builder.Services.AddSingleton<ILoggerProvider>(new Silence());
        builder.Logging.SetMinimumLevel(clock == "timestamp" ? LogLevel.Information : LogLevel.Critical);
        builder.WebHost.ConfigureKestrel(o =>
        {
            o.ListenLocalhost0(HttpProtocols.Http1);
            o.ListenLocalhost0(HttpProtocols.Http2);
            o.Limits.MinRequestBodyDataRate = null;
        });
        WebApplication app = builder.Build();
        app.MapGet("/quick/{id:int}", (int id) => $"quick {id}\n");
        Hanging.Map(app);
        await app.StartAsync();
        string[] urls = app.Urls.ToArray();
        App.Answer = command => Answer(command, urls);
        App.Line("READY");
        await Task.Factory.StartNew(() => App.WaitForEnd(), TaskCreationOptions.LongRunning);
        App.Line("RESULT OK");
        App.Exit(0); // requests may hang, and are not waited for
    }

    static void ListenLocalhost0(this KestrelServerOptions o, HttpProtocols protocols) =>
        o.Listen(System.Net.IPAddress.Loopback, 0, l => l.Protocols = protocols);

    static IEnumerable<string> Answer(string command, string[] urls)
    {
        string[] words = command.Split(' ');
        switch (words[0])
        {
            case "urls":
                return urls;
            case "begun":
                return Hanging.Begun();
            case "gone":
                return Hanging.Gone();
            case "closed":
                return Hanging.Closed();
            case "go":
                Hanging.Go(words[1]);
                return [Hanging.Count.ToString()];
            default:
                GC.Collect();
                return [];
        }
    }
}

/// <summary>Logs nothing; but somebody listens, as far as the server knows.</summary>
sealed class Silence : ILoggerProvider, ILogger
{
    public ILogger CreateLogger(string name) => this;
    public IDisposable BeginScope<T>(T state) => null;
    public bool IsEnabled(LogLevel level) => true;
    public void Log<T>(LogLevel level, EventId id, T state, Exception e, Func<T, Exception, string> text) { }
    public void Dispose() { }
}
