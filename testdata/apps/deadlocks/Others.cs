using System.Runtime.CompilerServices;
using System.Threading;

namespace Deadlocks;

/// <summary>Circles of joins, readers and static constructors.</summary>
static class Others
{
    public static void Fill()
    {
        Join();
        JoinItself();
        Upgrade();
        ReadersBehindWriter();
        Constructor();
        ConstructorAndLock();
    }

    static void Join()
    {
        var order = new Order();
        Zoo.Start("join", "1", () =>
        {
            lock (order)
            {
                var other = Zoo.Start("join", "2", () => { lock (order) order.Sum++; });
                other.Join();
            }
        });
        Zoo.Start("join", "v", () => { Zoo.Turn(300); lock (order) { } });
        Zoo.Says("join", Truth.Deadlock, ["1", "2"], ["v"]);
    }

    static void JoinItself()
    {
        Thread self = Zoo.Start("itself", "1", () => Thread.CurrentThread.Join());
        Zoo.Start("itself", "v", () => self.Join());
        Zoo.Says("itself", Truth.Deadlock, ["1"], ["v"]);
    }

    /// <summary>One wants to write, and waits for a reader to leave, who waits for the one that wants to write.</summary>
    static void Upgrade()
    {
        var table = new ReaderWriterLockSlim();
        var order = new Order();
        var meet = Zoo.Meeting(3);
        Zoo.Start("upgrade", "1", () =>
        {
            lock (order) { table.EnterUpgradeableReadLock(); meet(); Zoo.Turn(100); table.EnterWriteLock(); }
        });
        Zoo.Start("upgrade", "2", () => { table.EnterReadLock(); meet(); lock (order) { } });
        Zoo.Start("upgrade", "r", () => { table.EnterReadLock(); meet(); Thread.Sleep(Timeout.Infinite); });
        Zoo.Says("upgrade", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>
    /// A reader waits for a thread that wants to read as well, but has to wait behind one that wants to write, who waits
    /// for the first reader to leave.
    /// </summary>
    static void ReadersBehindWriter()
    {
        var table = new ReaderWriterLockSlim();
        var meet = Zoo.Meeting(3);
        Thread inner = Zoo.Start("behind", "3", () =>
        {
            meet();
            while (table.WaitingWriteCount == 0) Thread.Sleep(1);
            table.EnterReadLock();
        });
        Zoo.Start("behind", "1", () => { table.EnterReadLock(); meet(); inner.Join(); });
        Zoo.Start("behind", "2", () => { meet(); Zoo.Turn(100); table.EnterWriteLock(); });
        Zoo.Start("behind", "v", () => { Zoo.Turn(500); table.EnterUpgradeableReadLock(); });
        Zoo.Says("behind", Truth.Deadlock, ["1", "2", "3"], ["v"]);
    }

    /// <summary>The static constructor waits for a thread that needs the class.</summary>
    static void Constructor()
    {
        Zoo.Start("static", "1", () => Config.Touch());
        Zoo.Start("static", "v", () => { Zoo.Turn(500); Config.Touch(); });
        Zoo.Says("static", Truth.Deadlock, ["1", "2"], ["v"]);
    }

    static class Config
    {
        static int value;

        static Config()
        {
            Thread other = Zoo.Start("static", "2", () => Touch());
            other.Join();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Touch() => Interlocked.Increment(ref value);
    }

    /// <summary>The static constructor wants a lock, whose holder needs the class.</summary>
    static void ConstructorAndLock()
    {
        Zoo.Start("settings", "1", () =>
        {
            lock (Settings.Gate)
            {
                Zoo.Start("settings", "2", () => Settings.Inner.Touch());
                Zoo.Turn(300);
                Settings.Inner.Touch();
            }
        });
        Zoo.Says("settings", Truth.Deadlock, ["1", "2"]);
    }

    static class Settings
    {
        public static readonly Order Gate = new();

        public static class Inner
        {
            static int value;

            static Inner()
            {
                lock (Gate) value++;
            }

            [MethodImpl(MethodImplOptions.NoInlining)]
            public static void Touch() => Interlocked.Increment(ref value);
        }
    }
}
