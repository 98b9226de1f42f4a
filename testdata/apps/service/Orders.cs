using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using Common;

namespace OrderService;

sealed record Order(int Id, string Item, int Count);

/// <summary>What is in stock. One lock for all of it, held for too long.</summary>
sealed class Inventory
{
    readonly object stockLock = new();
    readonly Dictionary<string, int> stock = new();

    public bool Reserve(Order order)
    {
        lock (stockLock)
        {
            int left = stock.GetValueOrDefault(order.Item, 100);
            if (left < order.Count) return false;
            stock[order.Item] = left - order.Count;
            Audit(order);
            return true;
        }
    }

    public void Restock()
    {
        lock (stockLock)
            foreach (string item in stock.Keys.ToArray()) stock[item] = 100;
    }

    // The kind of thing that nobody should do under a lock.
    static void Audit(Order order) => Thread.Sleep(1 + order.Id % 3);
}

/// <summary>Orders wait here for a worker thread.</summary>
sealed class OrderQueue(Inventory inventory)
{
    readonly BlockingCollection<Order> waiting = new(boundedCapacity: 256);
    int reserved, refused;

    public (int Reserved, int Refused) Totals => (reserved, refused);

    public bool Accept(Order order) => waiting.TryAdd(order);

    public void Work()
    {
        while (!App.Ending)
        {
            if (waiting.TryTake(out Order order, millisecondsTimeout: 500)) Process(order);
        }
    }

    void Process(Order order)
    {
        if (inventory.Reserve(order)) Interlocked.Increment(ref reserved);
        else Interlocked.Increment(ref refused);
    }
}

/// <summary>Goods on a shelf, and the books about them. Each has a lock; not all take both in the same order.</summary>
sealed class Warehouse
{
    readonly Shelf shelf = new();
    readonly Ledger ledger = new();

    public void Ship()
    {
        lock (shelf)
        {
            shelf.Take();
            lock (ledger) ledger.Book(-1);
        }
    }

    public void Return()
    {
        lock (ledger)
        {
            ledger.Book(+1);
            lock (shelf) shelf.Put();
        }
    }

    public void Report()
    {
        lock (ledger) ledger.Book(0);
    }
}

sealed class Shelf
{
    int goods = 1000;

    public void Take()
    {
        goods--;
        Thread.Sleep(20);
    }

    public void Put() => goods++;
}

sealed class Ledger
{
    int sum;

    public void Book(int count)
    {
        sum += count;
        Thread.Sleep(20);
    }
}

static class Billing
{
    static readonly Dictionary<string, decimal> prices = new() { ["tea"] = 2.5m, ["milk"] = 1.2m };

    public static void Run()
    {
        Thread.Sleep(1000);
        Bill(17, "tea", "milk", "sugar");
    }

    static decimal Bill(int order, params string[] articles)
    {
        decimal sum = 0;
        try
        {
            foreach (string article in articles) sum += prices[article];
        }
        catch (KeyNotFoundException e)
        {
            throw new InvalidOperationException($"order {order} cannot be billed", e);
        }
        return sum;
    }
}

/// <summary>Computes prices all day: the hot loop.</summary>
sealed class PricingEngine
{
    double price = 100;

    public double Price => Volatile.Read(ref price);

    public void Run()
    {
        var random = new Random(42);
        while (!App.Ending) Volatile.Write(ref price, Simulate(random, paths: 2000, steps: 50));
    }

    static double Simulate(Random random, int paths, int steps)
    {
        double sum = 0;
        for (int i = 0; i < paths; i++) sum += Path(random, steps);
        return sum / paths;
    }

    static double Path(Random random, int steps)
    {
        double value = 100;
        for (int i = 0; i < steps; i++) value *= Math.Exp(0.01 * (random.NextDouble() - 0.5));
        return value;
    }
}
