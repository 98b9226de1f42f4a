using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using Common;
using Microsoft.Extensions.DependencyInjection;
using Shop.Services;
using Shop.Storage;

namespace Shop;

/// <summary>Clients that ask for a path again and again. "{n}" in it is another number each time.</summary>
sealed record Clients(string Name, int Count, int PauseMilliseconds, string Path)
{
    public override string ToString() => $"{Name} {Count} {PauseMilliseconds} {Path}";
}

/// <summary>A disease, and the requests that it needs to break out.</summary>
sealed record Sickness(string Name, params Clients[] Load)
{
    /// <summary>The thread pool's minimum; 0 is the runtime's own.</summary>
    public int Workers { get; init; }

    /// <summary>Whether each request asks first whose it is.</summary>
    public bool Tenants { get; init; }

    /// <summary>Starts what goes on without a request.</summary>
    public Action<IServiceProvider> Begin { get; init; }

    // What every shop has to do besides.
    static readonly Clients visitors = new("visitors", 2, 20, "/products/{n}");

    static readonly Sickness[] all =
    [
        new("none", visitors),
        // A lock that is held while a file is flushed and a replica answers.
        new("convoy", visitors, new("orders", 14, 0, "/orders/{n}/place")) { Workers = 24 },
        // Two locks, which two kinds of requests take in opposite orders.
        new("deadlock", visitors, new("sales", 4, 1, "/stock/{n}/reserve"), new("arrivals", 2, 1, "/stock/{n}/restock"))
            { Workers = 16 },
        // A middleware blocks on an asynchronous method.
        new("sync-over-async", new Clients("visitors", 300, 10, "/products/{n}")) { Tenants = true },
        // A Lock whose holder waits for a permit, whose holder awaits something and then wants the Lock.
        new("lock-semaphore", visitors, new("captures", 4, 1, "/payments/{n}/capture"),
            new("refunds", 2, 1, "/payments/{n}/refund")) { Workers = 16 },
        new("regex", visitors, new("reviewers", 1, 50, "/reviews/{n}/post")),
        new("exceptions", visitors, new("imports", 4, 6, "/imports/{n}")),
        new("buffers", visitors, new("browsers", 12, 0, "/images/{n}"))
            { Begin = s => s.GetRequiredService<ImageStore>().Fill() },
        new("remote", visitors, new("buyers", 12, 0, "/suppliers/{n}/price")) { Workers = 24 },
        new("remote-async", visitors, new("buyers", 12, 0, "/suppliers/{n}/price-later")),
        new("event-leak", visitors, new("watchers", 8, 4, "/alerts/{n}")),
        new("finalizer", visitors, new("readers", 2, 10, "/documents/{n}")),
        new("spin", visitors) { Begin = s => s.GetRequiredService<CacheWarmer>().Start() },
        new("descriptors", visitors, new("accountants", 4, 1, "/reports/{n}")),
        // Most of the heap's limit is kept, and the rest is collected again and again.
        new("crammed", visitors, new("browsers", 2, 1, "/images/{n}"))
            { Begin = s => s.GetRequiredService<SessionStore>().Fill() },
        // A call into a library keeps a thread in cooperative mode, and the garbage collector waits for it.
        new("suspension", visitors, new("scans", 1, 0, "/scans/{n}")),
        // Connections of a pool are lost where an exception comes between.
        new("leases", visitors, new("pickers", 30, 5, "/warehouse/{n}")),
        // The only reader of answers has ended, and all who asked wait.
        new("replies", visitors, new("trackers", 20, 20, "/parcels/{n}/where")),
        // A consumer tries its first item for ever, and the queue behind it grows.
        new("poison", visitors, new("printers", 4, 4, "/parcels/{n}/label"))
            { Begin = s => s.GetRequiredService<LabelQueue>().Start() },
        // Async methods ask again and again, each time on another thread of the pool.
        new("yielding", visitors, new("searchers", 6, 0, "/search/{n}")),
        // Each request leaves a thread behind.
        new("threads", visitors, new("carriers", 2, 50, "/parcels/{n}/deliver")),
        // A dictionary whose keys have one hash code.
        new("hashing", visitors, new("packers", 2, 2, "/parcels/{n}/shelf")),
        // Healthy: requests that wait for news, and for their turn.
        new("news", visitors, new("listeners", 60, 0, "/news/{n}")),
        new("limited", visitors, new("callers", 20, 0, "/limited/{n}")),
    ];

    public static Sickness Named(string name)
    {
        Sickness found = all.FirstOrDefault(s => s.Name == name);
        if (found == null) App.Fail($"no sickness {name}: there are {string.Join(", ", all.Select(s => s.Name))}");
        return found;
    }
}

/// <summary>What the program counts itself.</summary>
static class Counts
{
    static readonly ConcurrentDictionary<string, long> all = new();

    public static void Add(string what, long more = 1) => all.AddOrUpdate(what, more, (_, n) => n + more);

    public static IEnumerable<string> Lines() => all.OrderBy(c => c.Key).Select(c => $"{c.Key} {c.Value}");
}
