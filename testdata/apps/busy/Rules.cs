// Rules that are made of rules, walked by a generic visitor: two frames for each
// level, and the work at the leaf.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Runtime.CompilerServices;

namespace Busy;

interface IVisitor<T>
{
    T Visit(Discount rule);
    T Visit(Choice rule);
    T Visit(Items rule);
}

abstract class Rule
{
    public abstract T Visit<T>(IVisitor<T> visitor);

    /// <summary>A rule of so many levels.</summary>
    public static Rule Make(Random random, int levels, Catalog catalog)
    {
        if (levels == 0) return new Items(random.Next(1, 5));
        Rule inner = Make(random, levels - 1, catalog);
        return random.Next(2) == 0
            ? new Discount(random.Next(1, 30), inner)
            : new Choice(random.Next(2), inner, new Items(1));
    }
}

sealed class Discount(int percent, Rule inner) : Rule
{
    public readonly int Percent = percent;
    public readonly Rule Inner = inner;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public override T Visit<T>(IVisitor<T> visitor) => visitor.Visit(this);
}

sealed class Choice(int which, Rule likely, Rule rare) : Rule
{
    public readonly int Which = which;
    public readonly Rule Likely = likely, Rare = rare;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public override T Visit<T>(IVisitor<T> visitor) => visitor.Visit(this);
}

sealed class Items(int factor) : Rule
{
    public readonly int Factor = factor;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public override T Visit<T>(IVisitor<T> visitor) => visitor.Visit(this);
}

sealed class Pricing(Order order, Catalog catalog) : IVisitor<long>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public long Visit(Discount rule) => rule.Inner.Visit(this) * (100 - rule.Percent) / 100 + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public long Visit(Choice rule)
    {
        long price = rule.Likely.Visit(this);
        return price % 1000 == rule.Which ? price + rule.Rare.Visit(this) : price;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public long Visit(Items rule)
    {
        long sum = 0;
        for (int turn = 0; turn < 8; turn++)
        {
            sum += order.Items.Where(i => i % 3 != turn % 3).Select(i => catalog.Price(i) * rule.Factor).Sum();
            sum += catalog.Cheapest(order.Items);
        }
        return sum + catalog.Label(order).Length;
    }
}

/// <summary>What things cost.</summary>
sealed class Catalog
{
    readonly Dictionary<(int, string), long> prices = new();
    readonly string[] names;

    public Catalog(int seed)
    {
        names = Enumerable.Range(0, 97).Select(i => $"item {i * seed}").ToArray();
        for (int i = 0; i < names.Length; i++) prices[(i, names[i])] = 100 + i * 7 % 50;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public long Price(int item) => prices[(item, names[item])];

    [MethodImpl(MethodImplOptions.NoInlining)]
    public long Cheapest(int[] items)
    {
        Span<int> sorted = stackalloc int[items.Length];
        items.CopyTo(sorted);
        sorted.Sort((a, b) => Price(a).CompareTo(Price(b)));
        return Price(sorted[0]);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public string Label(Order order) =>
        string.Join(", ", order.Items.Take(8).Select(i => Price(i).ToString("N2", CultureInfo.InvariantCulture)));
}
