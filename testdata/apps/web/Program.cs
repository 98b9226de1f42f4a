// A web service on Kestrel with the work of a small one: routing, an await, some
// lookups, JSON. It listens on the loopback interface, on a port that it chooses.
//
//   --stdin, --max-seconds: see App.cs
//
// The command "url" on stdin is answered with its address, the command "units" with
//
//   UNITS <requests since the start> <CLOCK_MONOTONIC ns>
//
// At the end each answer must have come out as the first one to the same request did.
using System.Diagnostics;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Common;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace Web;

static class Program
{
    static long requests;

    static async Task Main(string[] args)
    {
        App.Start(args);
        WebApplicationBuilder builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders(); // stdout is for the protocol
        WebApplication app = builder.Build();
        app.Urls.Add("http://127.0.0.1:0");
        app.Use(Count);
        var orders = new Orders();
        app.MapGet("/text", context => context.Response.WriteAsync("Hello from Kestrel\n"));
        app.MapGet("/orders/{id:int}", orders.Handle);
        app.MapGet("/held", context => { Orders.Hold(); return Task.CompletedTask; });
        app.MapGet("/held/{id:int}", (int id) => orders.HoldLater(id));
        await app.StartAsync();
        string url = app.Urls.First();
        App.Answer = command =>
            [command == "url" ? url : $"UNITS {Interlocked.Read(ref requests)} {Stopwatch.GetTimestamp()}"];
        App.Line("READY");
        await Task.Run(() => App.WaitForEnd());
        await app.StopAsync();
        App.Line(orders.Wrong == null ? "RESULT OK" : "RESULT BAD " + orders.Wrong);
        App.Exit(orders.Wrong == null ? 0 : 1);
    }

    static Task Count(HttpContext context, RequestDelegate next)
    {
        Interlocked.Increment(ref requests);
        return next(context);
    }
}
