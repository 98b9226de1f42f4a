using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using Common;

namespace Shop;

/// <summary>The program works, and takes more CPU time than it needs. A thread each, with pauses.</summary>
static class Wasteful
{
    static volatile object last;

    static void Again(string name, Action work) => App.Background(name, () =>
    {
        while (true) work();
    });

    struct Place
    {
        public int Row, Column;
        public string Hall;
    }

    static readonly Dictionary<Place, int> stock = [];

    /// <summary>A struct without Equals is a key.</summary>
    public static void StructKeys() => Again("stock", CountStock);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void CountStock()
    {
        for (int i = 0; i < 200; i++)
        {
            var place = new Place { Row = i % 20, Column = i, Hall = "north" };
            stock[place] = stock.GetValueOrDefault(place) + 1;
        }
    }

    sealed class Label(int number)
    {
        readonly int number = number;

        public override bool Equals(object o) => o is Label l && l.number == number;

        public override int GetHashCode() => 17;
    }

    static readonly Dictionary<Label, int> labels = [];

    /// <summary>All keys have one hash code.</summary>
    public static void EqualHashes() => Again("labels", CountLabels);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void CountLabels()
    {
        for (int i = 0; i < 500; i++) labels[new Label(i)] = i;
    }

    static readonly int[] prices = [.. Enumerable.Range(0, 4000)];

    /// <summary>LINQ in a loop, over the same elements.</summary>
    public static void LinqInLoop() => Again("prices", ComparePrices);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ComparePrices()
    {
        int found = 0;
        for (int i = 0; i < 200; i++) found += prices.Where(p => p > i).OrderBy(p => -p).First();
        last = found;
    }

    static readonly object[] boxes = new object[64];

    /// <summary>Numbers become objects.</summary>
    public static void Boxes() => Again("boxes", Fill);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Fill()
    {
        for (int i = 0; i < 10_000; i++) boxes[i % boxes.Length] = i;
    }

    /// <summary>A text grows in a loop.</summary>
    public static void Joins() => Again("joins", Write);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Write()
    {
        string text = "";
        for (int i = 0; i < 2000; i++) text += "one more line\n";
        last = text;
    }
}
