using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Net.Http;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Http;

namespace Requests;

/// <summary>What a request waits for until it may go on.</summary>
sealed class Gate
{
    public readonly long Begun = Stopwatch.GetTimestamp();
    public readonly TaskCompletionSource Source = new(TaskCreationOptions.RunContinuationsAsynchronously);
    public readonly ManualResetEventSlim Event = new();
    public readonly SemaphoreSlim Semaphore = new(0);
    public readonly CancellationTokenSource Cancel = new();
    public HttpContext Context; // null: not known

    /// <summary>
    /// What ASP.NET Core says of the client, asked just now: nobody has asked before, and so nothing hears of the end.
    /// </summary>
    public bool Aborted => Context is { } c && c.RequestAborted.IsCancellationRequested;

    public bool Closed =>
        Context is { } c && c.Features.Get<IConnectionLifetimeFeature>().ConnectionClosed.IsCancellationRequested;

    public void Open()
    {
        Source.TrySetResult();
        Event.Set();
        Semaphore.Release();
        Cancel.Cancel();
    }
}

static class Hanging
{
    static readonly ConcurrentDictionary<string, Gate> gates = new();
    static readonly HttpClient http =
        new(new SocketsHttpHandler { MaxConnectionsPerServer = App.Int("connections", 2), UseProxy = false })
        {
            BaseAddress = new Uri($"http://{App.Text("upstream", "127.0.0.1:9")}/"), Timeout = TimeSpan.FromMinutes(10),
        };

    public static int Count => gates.Count;

    public static IEnumerable<string> Begun() => gates.Select(g => $"{g.Key} {g.Value.Begun}").ToArray();

    public static IEnumerable<string> Gone() => gates.Where(g => g.Value.Aborted).Select(g => g.Key).ToArray();

    public static IEnumerable<string> Closed() => gates.Where(g => g.Value.Closed).Select(g => g.Key).ToArray();

    public static void Go(string id)
    {
        if (gates.TryGetValue(id, out Gate gate)) gate.Open();
    }

    public static void Map(WebApplication app)
    {
        app.MapGet("/source/{id}", (string id) => Through(id, Source));
        app.MapGet("/semaphore/{id}", (string id) => Through(id, Semaphore));
        app.MapGet("/thread/{id}", (HttpContext context, string id) => OnThread(context, id));
        app.MapGet("/thread-later/{id}", (string id) => Through(id, ThreadLater));
        app.MapGet("/task/{id}", (string id) => Through(id, OnTask));
        app.MapGet("/delay/{id}", (string id) => Through(id, Delay));
        app.MapGet("/upstream/{id}", (string id) => Through(id, Upstream));
        app.MapGet("/several/{id}", (string id) => Through(id, Several));
        app.MapPost("/body/{id}", (HttpContext context, string id) => Through(id, gate => Body(context, gate)));
        app.MapGet("/answering/{id}", (HttpContext context, string id) => Through(id, gate => Answering(context, gate)));
        app.MapGet("/left/{id}", (HttpContext context, string id) => Through(id, Source, context));
        app.MapGet("/left-stream/{id}", (HttpContext context, string id) =>
            Through(id, gate => Answering(context, gate), context));
        app.MapGet("/answered/{id}", (HttpContext context, string id) =>
            Through(id, gate => Answered(context, gate), context));
        app.MapGet("/answered-chunked/{id}", (HttpContext context, string id) =>
            Through(id, gate => AnsweredChunked(context, gate), context));
    }

    static async Task Through(string id, Func<Gate, Task> wait, HttpContext context = null)
    {
        var gate = new Gate { Context = context };
        gates[id] = gate;
        try
        {
            await wait(gate);
        }
        finally
        {
            gates.TryRemove(id, out _);
        }
    }

    static async Task Source(Gate gate) => await Deeper(gate);

    static async Task Deeper(Gate gate) => await gate.Source.Task;

    static async Task Semaphore(Gate gate) => await gate.Semaphore.WaitAsync();

    /// <summary>Nothing is async on the way to here: it runs in the server's own call.</summary>
    static Task OnThread(HttpContext context, string id)
    {
        var gate = new Gate();
        gates[id] = gate;
        Block(gate);
        gates.TryRemove(id, out _);
        return context.Response.WriteAsync("held\n");
    }

    static async Task ThreadLater(Gate gate)
    {
        await Task.Yield();
        Block(gate);
    }

    static async Task OnTask(Gate gate) => await Task.Run(() => Block(gate));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Block(Gate gate) => gate.Event.Wait();

    static async Task Delay(Gate gate)
    {
        try
        {
            await Task.Delay(TimeSpan.FromMinutes(10), gate.Cancel.Token);
        }
        catch (OperationCanceledException) { }
    }

    static async Task Upstream(Gate gate)
    {
        try
        {
            using HttpResponseMessage answer = await http.GetAsync("prices?key=secret", gate.Cancel.Token);
        }
        catch (OperationCanceledException) { }
    }

    static async Task Several(Gate gate) => await Task.WhenAll(Deeper(gate), Semaphore(gate));

    static async Task Body(HttpContext context, Gate gate)
    {
        try
        {
            await context.Request.Body.ReadExactlyAsync(new byte[16], gate.Cancel.Token);
        }
        catch (OperationCanceledException) { }
    }

    static async Task Answering(HttpContext context, Gate gate)
    {
        await context.Response.WriteAsync("the beginning\n");
        await context.Response.Body.FlushAsync();
        await gate.Source.Task;
    }

    /// <summary>The client has the whole answer, and the application goes on.</summary>
    static async Task Answered(HttpContext context, Gate gate)
    {
        context.Response.ContentLength = 4;
        await context.Response.Body.WriteAsync("all\n"u8.ToArray());
        await gate.Source.Task;
    }

    static async Task AnsweredChunked(HttpContext context, Gate gate)
    {
        await context.Response.WriteAsync("all\n");
        await context.Response.CompleteAsync();
        await gate.Source.Task;
    }
}
