using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Routing;

namespace Web;

sealed record Line(string Item, int Count, long Price);

sealed record Order(int Id, Line[] Lines, long Total);

/// <summary>Answers what an order costs.</summary>
sealed class Orders
{
    readonly Dictionary<string, long> prices =
        Enumerable.Range(0, 97).ToDictionary(i => $"item-{i}", i => 100L + i * 7 % 50);
    readonly ConcurrentDictionary<int, long> totals = new();

    public volatile string Wrong;

    public async Task Handle(HttpContext context)
    {
        int id = int.Parse((string)context.GetRouteValue("id"), CultureInfo.InvariantCulture);
        Order order = await Load(id);
        if (totals.GetOrAdd(id % 1000, order.Total) != order.Total) Wrong = $"order {id}: {order.Total}";
        context.Response.ContentType = "application/json";
        await JsonSerializer.SerializeAsync(context.Response.Body, order);
    }

    /// <summary>Keeps its thread until the end of the program.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Hold() => Common.App.WaitForEnd();

    /// <summary>The same after an await that always suspends, so that it goes on on another thread.</summary>
    public async Task<string> HoldLater(int id)
    {
        await Load(id).ConfigureAwait(ConfigureAwaitOptions.ForceYielding);
        Hold();
        return "held";
    }

    // Stands for a database that answers at once, on another thread of the pool.
    async Task<Order> Load(int id)
    {
        await Task.Yield();
        return Price(id % 1000);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    Order Price(int id)
    {
        Line[] lines = Enumerable.Range(0, 8).Select(i => Priced($"item-{(id + 11 * i) % 97}", 1 + i % 3)).ToArray();
        return new Order(id, lines, lines.OrderBy(l => l.Item).Sum(l => l.Price));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    Line Priced(string item, int count) => new(item, count, prices[item] * count);
}
