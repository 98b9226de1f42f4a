#pragma warning disable CS0067, CS0649 // what is here is looked at from outside
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.InteropServices;
using System.Threading;

namespace Shop;

// A class for each way of being kept.

sealed class ByStatic { public ByStatic Next; }

sealed class ByStruct { public ByStruct Next; }

sealed class ByGeneric { public ByGeneric Next; }

sealed class ByThread { public ByThread Next; }

sealed class ByLocal { public ByLocal Next; }

sealed class ByStrong { public ByStrong Next; }

[StructLayout(LayoutKind.Sequential)]
sealed class ByPinned { public int Value; }

sealed class ByWeak { public ByWeak Next; }

sealed class ByLongWeak { public ByLongWeak Next; }

sealed class ByTable { public ByTable Next; }

sealed class ByFinalizer
{
    static int left;

    /// <summary>How many have not been finalized.</summary>
    public static int Left => Volatile.Read(ref left);

    ~ByFinalizer() => Interlocked.Decrement(ref left);

    public void Arm() => Interlocked.Increment(ref left);
}

/// <summary>Its finalizer does not come to an end.</summary>
sealed class Blocker
{
    ~Blocker()
    {
        Keep.Entered.Set();
        Keep.Blocked.Wait();
    }

    public void Arm() => GC.KeepAlive(this);
}

sealed class Order { public int Number; }

sealed class Listener
{
    public void Hear() { }
}

sealed class Reminder
{
    public void Remind(object state) { }
}

sealed class Session { public byte[] State = new byte[100]; }

/// <summary>The leaks that there are in nearly every program that leaks.</summary>
static class Leaks
{
    static readonly Dictionary<int, Order> all = new();
    static readonly Cache cache = new();
    static readonly Dictionary<int, Order> recent = new();
    static readonly CancellationTokenSource stopping = new();
    static int next;

    static event Action Raised;
    static readonly Feed feed = new();

    static readonly Dictionary<string, Action> kinds = new()
    {
        ["event"] = () => Raised += new Listener().Hear,              // that nobody leaves
        ["feed"] = () => feed.Raised += new Listener().Hear,          // the same, of an object
        ["dictionary"] = () => all[next] = new Order { Number = next }, // that is only added to
        ["timer"] = () => new Timer(new Reminder().Remind).Change(3_600_000, 3_600_000), // that is never disposed of
        ["token"] = () => stopping.Token.Register(new Listener().Hear), // which is not disposed of
        ["cache"] = () => cache.Add($"session {next}", new Session()), // that never throws anything out
        ["handles"] = () => GCHandle.Alloc(new Order { Number = next }), // that nobody frees
        ["assemblies"] = () =>                                         // as some serializers and scripts do
            AssemblyBuilder.DefineDynamicAssembly(new AssemblyName($"rules {next}"), AssemblyBuilderAccess.Run)
                .DefineDynamicModule("rules"),
        ["bounded"] = () =>                                            // no leak: a cache that does
        {
            recent[next] = new Order { Number = next };
            recent.Remove(next - 5_000);
        },
    };

    /// <summary>N more of each leak.</summary>
    public static void Grow(int n)
    {
        for (int i = 0; i < n; i++, next++)
        {
            foreach (string kind in new[] { "event", "dictionary", "timer", "cache" }) kinds[kind]();
        }
    }

    /// <summary>One kind goes on and on: so many in a second, from the beginning.</summary>
    public static void Go(string kind, int perSecond)
    {
        Action one = kinds[kind];
        long begin = Environment.TickCount64;
        while (true)
        {
            for (long due = (Environment.TickCount64 - begin) * perSecond / 1000; next < due; next++) one();
            if (kind != "feed") Thread.Sleep(10); // which must be changed during each look
        }
    }

    /// <summary>What a program does that starts: it fills a cache, and then has it.</summary>
    public static void WarmUp(int n)
    {
        for (int i = 0; i < n; i++) recent[-1 - i] = new Order { Number = i };
    }
}

sealed class Feed { public event Action Raised; }

/// <summary>A cache without a bound.</summary>
sealed class Cache
{
    readonly Dictionary<string, LinkedListNode<Session>> byKey = new();
    readonly LinkedList<Session> recent = new();

    public void Add(string key, Session session) => byKey[key] = recent.AddLast(session);
}
