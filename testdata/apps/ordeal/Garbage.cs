// Objects that must survive collections of every generation unchanged.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Ordeal;

static class Garbage
{
    const int Threads = 4, Length = 500, Weight = Length * (Length - 1) / 2;

    public static Worker[] Workers => [new("gcstress", Threads, Round, 4L * Weight)];

    sealed class Node(int value, Node next)
    {
        public readonly int Value = value;
        public readonly Node Next = next;
    }

    static int turn;

    /// <summary>A list, boxes, texts in a dictionary and a pinned array, with a collection in between.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Round()
    {
        Node list = null;
        var boxes = new object[Length];
        var texts = new Dictionary<string, int>();
        int[] pinned = GC.AllocateArray<int>(Length, pinned: true);
        for (int i = 0; i < Length; i++)
        {
            list = new Node(i, list);
            boxes[i] = i;
            texts[i.ToString()] = i;
            pinned[i] = i;
            GC.KeepAlive(new byte[100 + i % 7 * 300]);
            if (i % 100 == 50) Collect();
        }
        GC.KeepAlive(new double[20_000]); // a large object
        long sum = 0;
        for (Node n = list; n != null; n = n.Next) sum += n.Value;
        foreach (object o in boxes) sum += (int)o;
        foreach ((string text, int n) in texts) sum += text == n.ToString() ? n : -1;
        foreach (int n in pinned) sum += n;
        return sum;
    }

    // The youngest generation most often, a background collection now and then.
    static void Collect()
    {
        switch (Interlocked.Increment(ref turn) & 15)
        {
            case 0: GC.Collect(2, GCCollectionMode.Forced, blocking: false); break;
            case 1: GC.Collect(2, GCCollectionMode.Forced, blocking: true, compacting: true); break;
            case 2: GC.Collect(1); break;
            default: GC.Collect(0); break;
        }
    }
}
