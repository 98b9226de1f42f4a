// Allocations: a few methods, each with its own classes and its own share of the
// bytes.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading.Tasks;

namespace Events;

/// <summary>
/// Objects of one class in a unit of what a method allocates: how many, and how many bytes they have in all.
/// </summary>
readonly record struct Part(Type Class, long Count, long Bytes);

/// <summary>
/// A method that allocates units, each of the same objects. The runtime counts what
/// this thread allocates to the byte, so the truth does not depend on the sizes below:
/// what they do not explain is reported with the class "-".
/// </summary>
sealed class AllocationSite
{
    readonly Action<int> allocate;
    readonly Part[] parts;
    readonly Tally[] tallies;
    readonly Tally rest;
    readonly long unitBytes;

    public AllocationSite(string method, Action<int> allocate, params Part[] parts)
    {
        this.allocate = allocate;
        this.parts = parts;
        tallies = parts.Select(p => Truth.Of("alloc", method, p.Class)).ToArray();
        rest = Truth.Of("alloc", method, "-");
        unitBytes = parts.Sum(p => p.Bytes);
        Truth.Check(Explained);
    }

    public long UnitBytes => unitBytes;

    /// <summary>How often the first part was made.</summary>
    public long Units => tallies[0].Count / parts[0].Count;

    public void Run(int units)
    {
        long before = GC.GetAllocatedBytesForCurrentThread();
        allocate(units);
        long bytes = GC.GetAllocatedBytesForCurrentThread() - before;
        for (int i = 0; i < parts.Length; i++) tallies[i].Add(units * parts[i].Count, units * parts[i].Bytes);
        rest.Add(0, bytes - units * unitBytes);
    }

    // The runtime allocates a few objects of its own when something is done for the first
    // time, and pads some. More than that means that a size below is wrong for this runtime.
    const long Own = 64 << 10;

    string Explained() => rest.Amount is > -Own and < Own ? null : $"{rest}: not what its objects should have";
}

static class Allocate
{
    /// <summary>Two threads with the same sites, so many MB a second in all.</summary>
    public static Lane[] Lanes(int megabytes)
    {
        (double Share, AllocationSite Site)[] all = Shares();
        Site[] sites = all.Select(a => Visited(a.Share, a.Site)).ToArray();
        double bytesPerVisit = all.Sum(a => a.Share) / sites.Sum(s => s.Often);
        double visits = megabytes * 1e6 / bytesPerVisit;
        return [new Lane("alloc-1", visits / 2, sites), new Lane("alloc-2", visits / 2, sites)];
    }

    // A visit makes about 16 KB, or one unit that is larger; the more it makes, the rarer it is.
    static Site Visited(double share, AllocationSite site)
    {
        double bytes = Math.Max(16 << 10, site.UnitBytes);
        return new Site(share / bytes, () => site.Run(Units(bytes / site.UnitBytes)));
    }

    // From half to one and a half times as many.
    static int Units(double mean) => Math.Max(1, (int)Math.Round(mean * (.5 + Random.Shared.NextDouble())));

    // Of the bytes, in percent. All sizes are those of 64-bit runtimes: an object has
    // two words of its own, an array three, and three are the least.
    static (double, AllocationSite)[] Shares() =>
    [
        (34, Make(Nodes, new Part(typeof(Node), 1, 24))),
        (20, Make(Strings, new Part(typeof(string), 1, Size(22 + 2 * Letters)))),
        (14, Make(Kilobytes, new Part(typeof(byte[]), 1, ArrayBytes(1000)))),
        (10, Make(Chunks, new Part(typeof(char[]), 1, ArrayBytes(20_000)))),
        (5, Make(LargeArrays, new Part(typeof(int[]), 1, ArrayBytes(200_000)))),
        (3, Make(LargestArrays, new Part(typeof(double[]), 1, ArrayBytes(1 << 20)))),
        (5, Make(Lists, new Part(typeof(List<long>), 1, 32), new Part(typeof(long[]), Growths, GrowthBytes()))),
        (3, Make(Boxes, new Part(typeof(int), 1, 24))),
        (3, Make(Closures, new Part(Closure, 1, 24), new Part(typeof(Func<long>), 1, DelegateBytes))),
        (3, Make(AsyncMethods,
            new Part(StateMachineBox, 1, StateMachineBoxBytes), new Part(typeof(Action), 1, DelegateBytes))),
    ];

    static AllocationSite Make(Action<int> allocate, params Part[] parts) =>
        new("Events.Allocate." + allocate.Method.Name, allocate, parts);

    static long Size(long bytes) => (bytes + 7) & ~7;

    static long ArrayBytes(long content) => Size(24 + content);

    // .NET 11 has made two fields of a delegate one (System.Delegate, System.MulticastDelegate).
    static readonly long DelegateBytes = Environment.Version.Major >= 11 ? 56 : 64;

    // What is kept is reachable from elsewhere: else the JIT may put it on the stack.
    static object kept;

    public sealed class Node { public Node Next; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Nodes(int n)
    {
        Node list = null;
        for (int i = 0; i < n; i++) list = new Node { Next = list };
        kept = list;
    }

    const int Letters = 40;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Strings(int n)
    {
        for (int i = 0; i < n; i++) kept = new string('x', Letters);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Kilobytes(int n)
    {
        for (int i = 0; i < n; i++) kept = new byte[1000];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Chunks(int n)
    {
        for (int i = 0; i < n; i++) kept = new char[10_000];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void LargeArrays(int n)
    {
        for (int i = 0; i < n; i++) kept = new int[50_000];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void LargestArrays(int n)
    {
        for (int i = 0; i < n; i++) kept = new double[(1 << 20) / sizeof(double)];
    }

    const int ListLength = 512, FirstCapacity = 4;

    // The capacity doubles from FirstCapacity to ListLength.
    const int Growths = 8;

    static long GrowthBytes()
    {
        long bytes = 0;
        for (int capacity = FirstCapacity; capacity <= ListLength; capacity *= 2)
            bytes += ArrayBytes(capacity * sizeof(long));
        return bytes;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Lists(int n)
    {
        for (int i = 0; i < n; i++)
        {
            var list = new List<long>();
            for (int k = 0; k < ListLength; k++) list.Add(k);
            kept = list;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Boxes(int n)
    {
        for (int i = 0; i < n; i++) kept = i;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Closures(int n)
    {
        for (int i = 0; i < n; i++)
        {
            long captured = i;
            Func<long> f = () => captured;
            kept = f;
        }
    }

    static Type Closure => Array.Find(typeof(Allocate).GetNestedTypes(BindingFlags.NonPublic),
        t => t.GetFields() is [{ Name: "captured" }]);

    /// <summary>Each suspends itself once: its state machine moves to the heap, with a delegate to go on.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AsyncMethods(int n)
    {
        for (int i = 0; i < n; i++)
        {
            kept = Suspended(i);
            Pause.End();
        }
    }

    static async Task<long> Suspended(long n)
    {
        await new Pause();
        return n;
    }

    static Type StateMachineBox => typeof(AsyncTaskMethodBuilder<>)
        .GetNestedType("AsyncStateMachineBox`1", BindingFlags.NonPublic)
        .MakeGenericType(typeof(long), Truth.StateMachine(typeof(Allocate), nameof(Suspended)));

    // A task of a long, the delegate, the execution context and the state machine.
    const long StateMachineBoxBytes = 104;
}

/// <summary>Suspends an asynchronous method until End is called, on the same thread.</summary>
readonly struct Pause : INotifyCompletion
{
    [ThreadStatic] static Action rest;

    public Pause GetAwaiter() => this;
    public bool IsCompleted => false;
    public void OnCompleted(Action continuation) => rest = continuation;
    public void GetResult() { }

    public static void End()
    {
        Action run = rest;
        rest = null;
        run();
    }
}
