// The sites: each method allocates one class, and counts what it has allocated and what of that is kept.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Survivors;

/// <summary>An object of 48 bytes.</summary>
class Cell { public Cell Next; public long A, B, C; }

sealed class DroppedCell : Cell { }

/// <summary>Is kept by the event that it listens to: the planted leak.</summary>
sealed class Listener
{
    long heard;
    public long A, B, C, D, E, F;
    public void Hear(object sender, EventArgs e) => heard++;
}

static class Bus
{
    static EventHandler heard;
    static readonly List<EventHandler> all = new(); // a delegate of so many would be copied each time
    public static void Listen(EventHandler h) => all.Add(heard = h);
    public static void Forget() { all.Clear(); heard = null; }
}

static class Kept
{
    public static readonly List<object> All = new();
    public static readonly List<object> Awhile = new();
    public static Cell Cells;
    static readonly List<(byte[] Block, nint At)> placed = new();

    // The address is only a number, of the time when this is called.
    static unsafe nint At(object o) => *(nint*)Unsafe.AsPointer(ref o);

    public static void Add(byte[] block)
    {
        All.Add(block);
        if (placed.Count < 10_000) placed.Add((block, At(block)));
    }

    public static string Moved() => $"{placed.Count(p => At(p.Block) != p.At)} {placed.Count}";

    public static void Forget()
    {
        All.Clear();
        placed.Clear();
        Cells = null;
        Bus.Forget();
        Site.Forget();
    }
}

sealed class Site
{
    readonly string method, type;
    readonly Func<int, int> allocate; // so many objects; returns how many of these are kept
    readonly long size;
    long allocated, kept;

    Site(Func<int, int> allocate, Type type, long size)
    {
        (this.allocate, this.size) = (allocate, size);
        method = "Survivors.Site." + allocate.Method.Name;
        this.type = type.FullName;
    }

    static long Array(long bytes) => (24 + bytes + 7) & ~7;

    const int Block = 2000, Large = 200_000;

    static readonly Site[] sites =
    [
        new(KeepBlocks, typeof(byte[]), Array(Block)), new(KeepCells, typeof(Cell), 48),
        new(KeepLarge, typeof(byte[]), Array(Large)), new(KeepHalf, typeof(byte[]), Array(Block)),
        new(KeepPinned, typeof(byte[]), Array(Block)), new(Leak, typeof(Listener), 72),
        new(KeepAwhile, typeof(byte[]), Array(Block)), new(DropBlocks, typeof(byte[]), Array(Block)),
        new(DropCells, typeof(DroppedCell), 48), new(DropLarge, typeof(byte[]), Array(Large)),
    ];

    public static readonly Action[] Dropping =
        sites.Where(s => s.allocate.Method.Name.StartsWith("Drop")).Select(s => (Action)(() => s.Visit())).ToArray();

    const int VisitBytes = 64 << 10;

    void Visit()
    {
        int n = (int)Math.Max(1, VisitBytes / size);
        int stay = allocate(n);
        Interlocked.Add(ref allocated, n * size);
        Interlocked.Add(ref kept, stay * size);
    }

    /// <summary>Each site allocates so many MB, a little at a time, in an order that chance chooses.</summary>
    public static void Fill(int megabytes)
    {
        var random = new Random(1);
        long until = (long)megabytes << 20;
        long[] before = sites.Select(s => s.allocated).ToArray();
        Site[] left = sites;
        while (left.Length > 0)
        {
            random.Shuffle(left = left.ToArray());
            foreach (Site s in left) s.Visit();
            left = sites.Where((s, i) => s.allocated - before[i] < until).ToArray();
        }
        Kept.Awhile.Clear();
    }

    public static void Leaking(int megabytes)
    {
        Site leak = sites.Single(s => s.allocate == Leak);
        for (long end = leak.allocated + ((long)megabytes << 20); leak.allocated < end;) leak.Visit();
    }

    public static IEnumerable<string> Truth() => sites.Select(s => $"{s.method}\t{s.type}\t{s.allocated}\t{s.kept}");

    public static void Forget()
    {
        foreach (Site s in sites) s.kept = 0;
    }

    // What is dropped is reachable for a moment: else the JIT may put it on the stack.
    static object passing;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int KeepBlocks(int n)
    {
        for (int i = 0; i < n; i++) Kept.Add(new byte[Block]);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int KeepCells(int n)
    {
        for (int i = 0; i < n; i++) Kept.Cells = new Cell { Next = Kept.Cells };
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int KeepLarge(int n)
    {
        for (int i = 0; i < n; i++) Kept.All.Add(new byte[Large]);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int KeepHalf(int n)
    {
        for (int i = 0; i < n; i++)
        {
            var b = new byte[Block];
            passing = b;
            if (i % 2 == 0) Kept.All.Add(b);
        }
        return (n + 1) / 2;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int KeepPinned(int n)
    {
        for (int i = 0; i < n; i++) Kept.All.Add(GC.AllocateUninitializedArray<byte>(Block, pinned: true));
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Leak(int n)
    {
        for (int i = 0; i < n; i++) Bus.Listen(new Listener().Hear);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int KeepAwhile(int n)
    {
        for (int i = 0; i < n; i++) Kept.Awhile.Add(new byte[Block]);
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int DropBlocks(int n)
    {
        for (int i = 0; i < n; i++) passing = new byte[Block];
        passing = null;
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int DropCells(int n)
    {
        for (int i = 0; i < n; i++) passing = new DroppedCell();
        passing = null;
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int DropLarge(int n)
    {
        for (int i = 0; i < n; i++) passing = new byte[Large];
        passing = null;
        return 0;
    }
}

/// <summary>Threads that allocate and drop.</summary>
static class Churn
{
    static volatile bool on;
    static readonly List<Thread> threads = new();

    public static void Start(int megabytes)
    {
        on = true;
        threads.Add(Common.App.Background("churn", () =>
        {
            while (on)
            {
                for (int i = 0; i < megabytes; i++) // a visit of each of the sites is 256 KB
                    foreach (Action visit in Site.Dropping) visit();
                Thread.Sleep(250);
            }
        }));
    }

    public static void Stop()
    {
        on = false;
        foreach (Thread t in threads) t.Join();
        threads.Clear();
    }

    public static long Throughput(int milliseconds)
    {
        long sum = 0;
        long end = Environment.TickCount64 + milliseconds;
        var all = new Thread[2];
        for (int i = 0; i < all.Length; i++)
        {
            all[i] = Common.App.Background("throughput", () =>
            {
                long bytes = 0;
                while (Environment.TickCount64 < end) bytes += Small();
                Interlocked.Add(ref sum, bytes);
            });
        }
        foreach (Thread t in all) t.Join();
        return sum / 1000 / milliseconds;
    }

    public static void SmallObjects(int megabytes)
    {
        for (long bytes = 0; bytes < megabytes * 1_000_000L;) bytes += Small();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Small()
    {
        const int n = 10_000;
        Cell list = null;
        for (int i = 0; i < n; i++)
        {
            if (i % 100 == 0) list = null;
            list = new Cell { Next = list };
        }
        GC.KeepAlive(list);
        return 48 * n;
    }
}
