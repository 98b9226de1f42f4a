using System;
using System.Threading;
using System.Threading.Tasks;

namespace Waits;

/// <summary>Locks in fields, as programs have them.</summary>
static class Fields
{
    public static void Fill()
    {
        var ledger = new StockLedger();
        Wants("field-base", ledger.Gate, "Waits.Ledger._gate", ledger.Book);
        Wants("field-property", ledger.Door, "Waits.Ledger.Door", ledger.Enter);
        Wants("field-generic", ledger.Books.Gate, "Waits.Books<int>.Gate", ledger.Books.Open);
        Wants("field-lambda", ledger.Page, "Waits.StockLedger.Page", () => ledger.Lambda(1));
        Wants("field-async", ledger.Line, "Waits.StockLedger.Line", () => ledger.Write(1));
        var hidden = new Hidden();
        Wants("field-none", hidden.First, "", hidden.Enter);
        Wants("field-static", StockLedger.All, "Waits.StockLedger.All", StockLedger.Close);
        Wants("field-outer", StockLedger.Most, "Waits.StockLedger.Most", StockLedger.Inner.Close);
        Zoo.Waits(new() { Thread = "field-permits", Kind = "SemaphoreSlim.Wait",
            Type = "System.Threading.SemaphoreSlim", Object = ledger.Permits, Waiters = 1, Timeout = -1,
            Field = "Waits.StockLedger.Permits" }, ledger.Permit);
    }

    /// <summary>One thread holds a lock, and another one wants it, that knows it by a field.</summary>
    static void Wants(string name, object gate, string field, Action enter)
    {
        Zoo.Holds(new() { Thread = name + "-held", Kind = "Monitor.Enter", Type = "object", Object = gate,
            Recursion = 1, Waiters = 1, Field = "variable gate of Waits.Fields" }, rest => { lock (gate) rest(); });
        Zoo.Waits(new() { Thread = name, Kind = "Monitor.Enter", Type = "object", Object = gate,
            Owner = name + "-held", Recursion = 1, Waiters = 1, Timeout = -1, Field = field }, enter);
    }
}

class Ledger
{
    protected readonly object _gate = new();
    protected int sum;

    public object Gate => _gate;
    public object Door { get; } = new();

    public void Enter() { lock (Door) sum++; }
}

class Books<T>
{
    public readonly object Gate = new();
    T last;

    public void Open() { lock (Gate) last = default; }
}

class StockLedger : Ledger
{
    public static readonly object All = new(), Most = new();
    static int closed;

    public readonly object Page = new(), Line = new();
    public readonly Books<int> Books = new();
    public readonly SemaphoreSlim Permits = new(0);

    public void Book() { lock (_gate) sum++; }

    public void Lambda(int n)
    {
        Action add = () => { lock (Page) sum += n; };
        add();
    }

    public void Write(int n) => WriteAsync(n).GetAwaiter().GetResult();

    async Task WriteAsync(int n)
    {
        lock (Line) sum += n;
        await Task.Yield();
    }

    public void Permit() => Permits.Wait();

    public static void Close() { lock (All) closed++; }

    public static class Inner
    {
        public static void Close() { lock (Most) closed++; }
    }
}

/// <summary>What holds the lock is no field.</summary>
class Hidden
{
    readonly object[] gates = [new object()];
    int sum;

    public object First => gates[0];

    public void Enter() { lock (gates[0]) sum++; }
}
