using System;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Churn;

/// <summary>A lock. The object of a monitor is another one from time to time.</summary>
abstract class Gate
{
    public int Slot;

    /// <summary>The slot, and which object it is that has it.</summary>
    protected int Id(int generation) => generation << 8 | Slot;

    /// <summary>Enters, stays, and leaves; often not once only, and sometimes in vain.</summary>
    public abstract void Pass(Random random, int depth);

    /// <summary>What is done in the lock. The next gate is one of a higher slot, so that nobody waits for ever.</summary>
    protected void Stay(Random random, int depth)
    {
        switch (random.Next(6))
        {
            case 0: Thread.Sleep(random.Next(4)); break;
            case 4: Thread.Sleep(random.Next(30)); break;
            case 1: Thread.SpinWait(random.Next(20_000)); break;
            case 2: Garbage(random); break;
            case 3: if (depth < 3 && Slot + 1 < Gates.All.Length) Gates.After(Slot, random).Pass(random, depth + 1); break;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Garbage(Random random)
    {
        for (int i = 0; i < 200; i++) GC.KeepAlive(new byte[random.Next(200)]);
    }
}

/// <summary>A class for each slot: its name says which it is.</summary>
sealed class Key<T>
{
    public int Generation;
}

sealed class MonitorGate<T> : Gate
{
    volatile Key<T> key = new();

    public override void Pass(Random random, int depth)
    {
        Key<T> k = key;
        int id = Id(k.Generation);
        if (random.Next(8) == 0) RuntimeHelpers.GetHashCode(k); // no room for a thin lock any more
        Journal.Write(Event.Entering, id, 1);
        if (random.Next(5) != 0) Monitor.Enter(k);
        else if (!Monitor.TryEnter(k, random.Next(60)))
        {
            Journal.Write(Event.Failed, id, 1);
            return;
        }
        Journal.Write(Event.Entered, id, 1);
        try
        {
            if (random.Next(4) == 0) Again(k, id);
            Stay(random, depth);
            if (random.Next(10) == 0 && k == key)
                key = new Key<T> { Generation = k.Generation + 1 };
        }
        finally
        {
            Journal.Write(Event.Leaving, id, 1);
            Monitor.Exit(k);
            Journal.Write(Event.Left, id, 0);
        }
    }

    static void Again(Key<T> k, int id)
    {
        Journal.Write(Event.Entering, id, 2);
        lock (k)
        {
            Journal.Write(Event.Entered, id, 2);
            Thread.Yield();
            Journal.Write(Event.Leaving, id, 2);
        }
        Journal.Write(Event.Left, id, 1);
    }
}

#if NET9_0_OR_GREATER
sealed class LockGate : Gate
{
    readonly Lock key = new();

    public override void Pass(Random random, int depth)
    {
        int id = Id(0);
        Journal.Write(Event.Entering, id, 1);
        if (random.Next(5) != 0) key.Enter();
        else if (!key.TryEnter(random.Next(60)))
        {
            Journal.Write(Event.Failed, id, 1);
            return;
        }
        Journal.Write(Event.Entered, id, 1);
        try { Stay(random, depth); }
        finally
        {
            Journal.Write(Event.Leaving, id, 1);
            key.Exit();
            Journal.Write(Event.Left, id, 0);
        }
    }
}
#endif

sealed class WriterGate : Gate
{
    readonly ReaderWriterLockSlim key = new();

    public override void Pass(Random random, int depth)
    {
        int id = Id(0);
        Journal.Write(Event.Entering, id, 1);
        if (random.Next(5) != 0) key.EnterWriteLock();
        else if (!key.TryEnterWriteLock(random.Next(60)))
        {
            Journal.Write(Event.Failed, id, 1);
            return;
        }
        Journal.Write(Event.Entered, id, 1);
        try { Stay(random, depth); }
        finally
        {
            Journal.Write(Event.Leaving, id, 1);
            key.ExitWriteLock();
            Journal.Write(Event.Left, id, 0);
        }
    }
}

struct S0; struct S1; struct S2; struct S3; struct S4; struct S5;

static class Gates
{
    /// <summary>A gate that is the end of a thread.</summary>
    public const int Join = 1 << 30;

    public static Gate[] All;

    public static void Fill()
    {
        All =
        [
            new MonitorGate<S0>(), new MonitorGate<S1>(), new MonitorGate<S2>(), new MonitorGate<S3>(),
            new MonitorGate<S4>(), new MonitorGate<S5>(), new WriterGate(), new WriterGate(),
#if NET9_0_OR_GREATER
            new LockGate(), new LockGate(),
#endif
        ];
        for (int i = 0; i < All.Length; i++) All[i].Slot = i;
    }

    public static Gate Random(Random random) => All[random.Next(All.Length)];

    public static Gate After(int slot, Random random) => All[random.Next(slot + 1, All.Length)];
}
