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
