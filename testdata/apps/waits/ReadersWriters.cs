using System;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Waits;

/// <summary>ReaderWriterLockSlim.</summary>
static class ReadersWriters
{
    const string type = "System.Threading.ReaderWriterLockSlim";

    public static void Fill()
    {
        var written = new ReaderWriterLockSlim();
        Zoo.Holds(new() { Thread = "rw-writer", Kind = "ReaderWriterLockSlim.Write", Type = type, Object = written,
            Waiters = 3 }, rest => Write(written, rest));
        Zoo.Waits(new() { Thread = "rw-read", Kind = "ReaderWriterLockSlim.Read", Type = type, Object = written,
            Owner = "rw-writer" }, () => written.EnterReadLock());
        Zoo.Waits(new() { Thread = "rw-write", Kind = "ReaderWriterLockSlim.Write", Type = type, Object = written,
            Owner = "rw-writer" }, () => written.EnterWriteLock());
        Zoo.Waits(new() { Thread = "rw-upgradeable", Kind = "ReaderWriterLockSlim.UpgradeableRead", Type = type,
            Object = written, Owner = "rw-writer" }, () => written.TryEnterUpgradeableReadLock(3_600_000));

        // Entered and not left, in a method that has returned: who waits for it knows the owner.
        var away = new ReaderWriterLockSlim();
        Zoo.Holds(new() { Thread = "rw-away", Kind = "ReaderWriterLockSlim.Write", Type = type, Object = away,
            Waiters = 1 }, rest => { Take(away); rest(); });
        Zoo.Waits(new() { Thread = "rw-waits-away", Kind = "ReaderWriterLockSlim.Read", Type = type, Object = away,
            Owner = "rw-away" }, () => away.EnterReadLock());

        // Readers keep a writer out, and nobody owns it.
        var read = new ReaderWriterLockSlim();
        for (int i = 0; i < 2; i++) Zoo.Start($"rw-reader-{i}", () => { read.EnterReadLock(); Zoo.Rest(); });
        SpinWait.SpinUntil(() => read.CurrentReadCount == 2);
        Zoo.Waits(new() { Thread = "rw-readers", Kind = "ReaderWriterLockSlim.Write", Type = type, Object = read },
            () => read.EnterWriteLock());

        // An upgrade waits for the other readers.
        var upgraded = new ReaderWriterLockSlim();
        Zoo.Start("rw-other", () => { upgraded.EnterReadLock(); Zoo.Rest(); });
        SpinWait.SpinUntil(() => upgraded.CurrentReadCount == 1);
        Zoo.Waits(new() { Thread = "rw-upgrade", Kind = "ReaderWriterLockSlim.Write", Type = type, Object = upgraded },
            () => Upgrade(upgraded));
        Zoo.Also(new Hold { Thread = "rw-upgrade", Kind = "ReaderWriterLockSlim.UpgradeableRead", Type = type,
            Object = upgraded, Waiters = 1 });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Take(ReaderWriterLockSlim rw) => rw.EnterWriteLock();

    static void Write(ReaderWriterLockSlim rw, Action rest)
    {
        rw.EnterWriteLock();
        try { rest(); }
        finally { rw.ExitWriteLock(); }
    }

    static void Upgrade(ReaderWriterLockSlim rw)
    {
        rw.EnterUpgradeableReadLock();
        try
        {
            rw.EnterWriteLock();
            rw.ExitWriteLock();
        }
        finally { rw.ExitUpgradeableReadLock(); }
    }
}
