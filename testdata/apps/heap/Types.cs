#pragma warning disable CS0067, CS0649 // what is here is looked at from outside
using System;

namespace Shop;

// Classes of which the program knows how many objects there are. Nothing else makes any.

sealed class Customer
{
    public long Number;
    public string Name;
    public Customer Next;
}

/// <summary>What a large heap is filled with.</summary>
sealed class Filler
{
    public long Number;
    public string Name;
    public Filler Next;
}

sealed class Customer<T>
{
    public T Key;
    public object Tag;
}

struct Line
{
    public long Product;
    public int Count;
    public byte Flags;
}

sealed class Node
{
    public Node Left, Right;
}

abstract class Shape
{
    public int Corners;
}

sealed class Square : Shape
{
    public double Side;
}

enum Colour : byte { Red }

/// <summary>There is no object of it. The address of its MethodTable lies everywhere on the heap.</summary>
sealed class Never
{
    public Never Next;
}

/// <summary>A leak: listeners are added, and never removed.</summary>
static class Bus
{
    public static event Action Raised;

    public static void Listen(Listener l) => Raised += l.Hear;
}

sealed class Listener
{
    readonly byte[] state = new byte[1000];

    public void Hear() => state[0]++;
}
