using System.Runtime.CompilerServices;
using System.Threading;

namespace Waits;

class Order { public int Sum; }

class Box<T> { public T Value; }

/// <summary>Monitor, in all its ways.</summary>
static class Monitors
{
    const string type = "Waits.Order";

    public static void Fill()
    {
        Contended();
        Deadlock();
        Waiting();
        Thin();
        Generic();
        Static();
    }

    /// <summary>One holds, three times over; five want it, one of them not for ever.</summary>
    static void Contended()
    {
        var order = new Order();
        const string field = "variable order of Waits.Monitors";
        Zoo.Holds(new() { Thread = "held-thrice", Kind = "Monitor.Enter", Type = type, Object = order, Recursion = 3,
            Waiters = 5, Field = field }, rest => { lock (order) lock (order) lock (order) rest(); });
        for (int i = 0; i < 4; i++)
            Zoo.Waits(new() { Thread = $"enter-{i}", Kind = "Monitor.Enter", Type = type, Object = order,
                Owner = "held-thrice", Recursion = 3, Waiters = 5, Timeout = -1, Field = field }, () => { lock (order) order.Sum++; });
        Zoo.Waits(new() { Thread = "try-enter", Kind = "Monitor.Enter", Type = type, Object = order,
            Owner = "held-thrice", Recursion = 3, Waiters = 5, Timeout = 3_600_000 },
            () => Monitor.TryEnter(order, 3_600_000));
    }

    /// <summary>Two threads, two locks.</summary>
    static void Deadlock()
    {
        Order a = new(), b = new();
        var both = new Barrier(2);
        void One(string name, Order first, Order second, string other)
        {
            Zoo.Waits(new() { Thread = name, Kind = "Monitor.Enter", Type = type, Object = second, Owner = other,
                Recursion = 1, Waiters = 1, Timeout = -1 }, () =>
                {
                    lock (first)
                    {
                        both.SignalAndWait();
                        lock (second) second.Sum++;
                    }
                });
            Zoo.Also(new Hold { Thread = name, Kind = "Monitor.Enter", Type = type, Object = first, Recursion = 1,
                Waiters = 1 });
        }
        One("deadlock-a", a, b, "deadlock-b");
        One("deadlock-b", b, a, "deadlock-a");
    }

    /// <summary>Monitor.Wait does not need the lock; one who would wake it holds another.</summary>
    static void Waiting()
    {
        Order pulse = new(), timed = new(), held = new(), other = new();
        Zoo.Waits(new() { Thread = "wait", Kind = "Monitor.Wait", Type = type, Object = pulse, Timeout = -1 },
            () => { lock (pulse) Monitor.Wait(pulse); });
        Zoo.Waits(new() { Thread = "wait-timed", Kind = "Monitor.Wait", Type = type, Object = timed,
            Timeout = 3_600_000 }, () => { lock (timed) Monitor.Wait(timed, 3_600_000); });
        Zoo.Waits(new() { Thread = "wait-holding", Kind = "Monitor.Wait", Type = type, Object = held, Timeout = -1 },
            () => { lock (other) lock (held) Monitor.Wait(held); });
        Zoo.Also(new Hold { Thread = "wait-holding", Kind = "Monitor.Enter", Type = type, Object = other,
            Recursion = 1, Waiters = 0 });
    }

    /// <summary>Held, and nobody wants it: no sync block.</summary>
    static void Thin()
    {
        var thin = new Order();
        Zoo.Holds(new() { Thread = "thin", Kind = "Monitor.Enter", Type = type, Object = thin, Recursion = 1,
            Waiters = 0 }, rest => { lock (thin) rest(); });
        var often = new Order();
        Zoo.Holds(new() { Thread = "thin-often", Kind = "Monitor.Enter", Type = type, Object = often, Recursion = 3,
            Waiters = 0 }, rest => { lock (often) lock (often) lock (often) rest(); });

        // Entered and not left, in a method that has returned: only the sync block knows.
        var hashed = new Order();
        hashed.GetHashCode();
        Zoo.Holds(new() { Thread = "hashed", Kind = "Monitor.Enter", Type = type, Object = hashed, Recursion = 1,
            Waiters = 0 }, rest => { Take(hashed); rest(); });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Take(object o) => Monitor.Enter(o);

    static void Generic()
    {
        var box = new Box<string>();
        Zoo.Holds(new() { Thread = "held-box", Kind = "Monitor.Enter", Type = "Waits.Box<string>", Object = box,
            Recursion = 1, Waiters = 1 }, rest => { lock (box) rest(); });
        Zoo.Waits(new() { Thread = "enter-box", Kind = "Monitor.Enter", Type = "Waits.Box<string>", Object = box,
            Owner = "held-box", Recursion = 1, Waiters = 1, Timeout = -1 }, () => { lock (box) box.Value = ""; });
    }

    /// <summary>A class as a lock, and a string.</summary>
    static void Static()
    {
        object t = typeof(Order);
        Zoo.Holds(new() { Thread = "held-type", Kind = "Monitor.Enter", Type = "System.RuntimeType", Object = t,
            Recursion = 1, Waiters = 1 }, rest => { lock (t) rest(); });
        Zoo.Waits(new() { Thread = "enter-type", Kind = "Monitor.Enter", Type = "System.RuntimeType", Object = t,
            Owner = "held-type", Recursion = 1, Waiters = 1, Timeout = -1 }, () => { lock (t) { } });
        object s = new string('x', 3);
        Zoo.Holds(new() { Thread = "held-string", Kind = "Monitor.Enter", Type = "string", Object = s,
            Recursion = 1, Waiters = 1 }, rest => { lock (s) rest(); });
        Zoo.Waits(new() { Thread = "enter-string", Kind = "Monitor.Enter", Type = "string", Object = s,
            Owner = "held-string", Recursion = 1, Waiters = 1, Timeout = -1 }, () => { lock (s) { } });
    }
}
