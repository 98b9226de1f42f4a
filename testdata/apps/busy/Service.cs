// A service without a network: middleware, a handler, and prices by rules that
// are made of rules.
using System;
using System.Collections.Generic;
using System.Linq;

namespace Busy;

sealed record Order(int Number, int Customer)
{
    public readonly int[] Items =
        Enumerable.Range(0, 24 + Number % 5).Select(i => (i * 37 + Number * 11 + Customer) % 97).ToArray();
}

delegate long Handler(Order order);

interface IMiddleware
{
    long Invoke(Order order, Handler next);
}

sealed class Counting : IMiddleware
{
    long count;

    public long Invoke(Order order, Handler next)
    {
        count++;
        return next(order);
    }
}

sealed class Guarded : IMiddleware
{
    public long Invoke(Order order, Handler next)
    {
        try
        {
            return next(order);
        }
        catch (InvalidOperationException) when (order.Number < 0)
        {
            return 0;
        }
    }
}

sealed class Locked : IMiddleware
{
    readonly object gate = new();

    public long Invoke(Order order, Handler next)
    {
        lock (gate) return next(order);
    }
}

sealed class Service
{
    readonly Handler first;
    readonly Rule rules;
    readonly Catalog catalog;

    public Service(int seed)
    {
        catalog = new Catalog(seed);
        rules = Rule.Make(new Random(seed), 10 + seed % 11, catalog);
        IMiddleware[] chain = [new Counting(), new Guarded(), new Locked(), new Counting(), new Guarded()];
        first = Enumerable.Reverse(chain).Aggregate((Handler)Price, (next, m) => order => m.Invoke(order, next));
    }

    public long Handle(Order order) => first(order);

    long Price(Order order) => rules.Visit(new Pricing(order, catalog)) + order.Number;
}
