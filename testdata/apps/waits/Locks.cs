using System.Runtime.CompilerServices;
using System.Threading;

namespace Waits;

/// <summary>System.Threading.Lock, of .NET 9 and later.</summary>
static class Locks
{
    public static void Fill()
    {
#if NET9_0_OR_GREATER
        const string type = "System.Threading.Lock";
        var held = new Lock();
        Zoo.Holds(new() { Thread = "lock-held", Kind = "Lock.Enter", Type = type, Object = held, Recursion = 2,
            Waiters = 3 }, rest => { lock (held) lock (held) rest(); });
        for (int i = 0; i < 2; i++)
            Zoo.Waits(new() { Thread = $"lock-{i}", Kind = "Lock.Enter", Type = type, Object = held,
                Owner = "lock-held", Recursion = 2, Waiters = 3, Timeout = -1 }, () => { lock (held) { } });
        Zoo.Waits(new() { Thread = "lock-try", Kind = "Lock.Enter", Type = type, Object = held,
            Owner = "lock-held", Recursion = 2, Waiters = 3, Timeout = 3_600_000 },
            () => { if (held.TryEnter(3_600_000)) held.Exit(); });

        // A lock that nobody wants, held in a lock that somebody wants.
        Lock alone = new(), wanted = new();
        Zoo.Holds(new() { Thread = "lock-both", Kind = "Lock.Enter", Type = type, Object = wanted, Recursion = 1,
            Waiters = 1 }, rest => { lock (alone) lock (wanted) rest(); });
        Zoo.Also(new Hold { Thread = "lock-both", Kind = "Lock.Enter", Type = type, Object = alone, Recursion = 1,
            Waiters = 0 });
        Zoo.Waits(new() { Thread = "lock-one", Kind = "Lock.Enter", Type = type, Object = wanted,
            Owner = "lock-both", Recursion = 1, Waiters = 1, Timeout = -1 }, () => { using (wanted.EnterScope()) { } });

        // Entered and not left, in a method that has returned: who waits for it knows the owner.
        var away = new Lock();
        Zoo.Holds(new() { Thread = "lock-away", Kind = "Lock.Enter", Type = type, Object = away, Recursion = 1,
            Waiters = 1 }, rest => { Take(away); rest(); });
        Zoo.Waits(new() { Thread = "lock-waits-away", Kind = "Lock.Enter", Type = type, Object = away,
            Owner = "lock-away", Recursion = 1, Waiters = 1, Timeout = -1 }, () => { lock (away) { } });
#endif
    }

#if NET9_0_OR_GREATER
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Take(Lock l) => l.Enter();
#endif
}
