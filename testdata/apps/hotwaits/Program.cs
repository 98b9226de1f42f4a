// Threads that have waited so often that the JIT has compiled and inlined what they wait in. Each waits a thousandth of
// a second, again and again, and at last for ever in the same method. The program says what each waits for. With
// --short none of them comes to wait for ever.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace HotWaits;

static class Program
{
    // The JIT compiles what was called 30 times, a tenth of a second later, if it does not do so at once.
    static readonly bool tiers = Environment.GetEnvironmentVariable("DOTNET_TieredCompilation") != "0";
    static readonly int rounds = tiers ? 8 : 1, waits = tiers ? 35 : 5;

    static readonly List<string> truths = new();
    static readonly List<Thread> threads = new();
    static volatile int ms;

    static void Main(string[] args)
    {
        App.Start(args);
        ms = App.Int("ms", 1);
        var shop = new Shop();
        Add("auto", "WaitHandle.WaitOne", "System.Threading.AutoResetEvent", "HotWaits.Shop.Bell", "", Shop.Ring);
        Add("manual", "WaitHandle.WaitOne", "System.Threading.ManualResetEvent", "HotWaits.Shop.door", "", shop.Door);
        Add("semaphore", "WaitHandle.WaitOne", "System.Threading.Semaphore", "HotWaits.Shop.Places", "", Shop.Place);
        Add("mutex", "WaitHandle.WaitOne", "System.Threading.Mutex", "HotWaits.Shop.Key", "holder", Shop.Take);
        if (App.Flag("exchange"))
            Add("exchange", "WaitHandle.WaitOne", "System.Threading.ManualResetEvent", "HotWaits.Shop.Closed", "",
                Shop.Exchange);
        Add("monitor", "Monitor.Wait", "object", "HotWaits.Shop.Board", "", Shop.Read);
        Add("own", "Monitor.Wait", "HotWaits.Shop", null, "", shop.Own);
        Add("slim", "ManualResetEventSlim.Wait", "System.Threading.ManualResetEventSlim", "HotWaits.Shop.Gate", "",
            Shop.Pass);
        Add("permit", "SemaphoreSlim.Wait", "System.Threading.SemaphoreSlim", "HotWaits.Shop.permits", "", shop.Permit);
        Add("permits", "SemaphoreSlim.Wait", "System.Threading.SemaphoreSlim", "HotWaits.Shop.Permits", "",
            Shop.Permitted);
        Add("count", "CountdownEvent.Wait", "System.Threading.CountdownEvent", "HotWaits.Shop.Count", "", Shop.Finish);
        Add("task", "Task.Wait", "System.Threading.Tasks.Task", "HotWaits.Shop.Order", "", Shop.Deliver);
        Add("take", "BlockingCollection.Take", "System.Collections.Concurrent.BlockingCollection<int>",
            "HotWaits.Shop.Orders", "", Shop.Next);
        Add("enter", "Monitor.Enter", "object", "HotWaits.Shop.Till", "holder", Shop.Enter);
        Add("lock", "Lock.Enter", "System.Threading.Lock", "HotWaits.Shop.Safe", "holder", Shop.Open);
        Add("read", "ReaderWriterLockSlim.Read", "System.Threading.ReaderWriterLockSlim",
            "HotWaits.Shop.Books", "holder", Shop.Look);
        Add("join", "Thread.Join", "System.Threading.Thread", null, "holder", Shop.Leave);
        Add("sleeps", "Thread.Sleep", "", null, "", Shop.Sleep);
        Add("any", "WaitHandle.WaitAny", null, null, "", Shop.Any);
        Add("all", "WaitHandle.WaitAll", null, null, "holder", Shop.All);
        Add("all-tasks", "Task.WaitAll", null, null, "", Shop.AllTasks, "2 of 2 tasks not complete");
        Add("any-task", "Task.WaitAny", null, null, "", Shop.AnyTask, "3 tasks");
        Shop.Holder = App.Background("holder", Shop.Hold);
        Shop.Held.Wait();
        foreach (Thread t in threads) t.Start();
        bool brief = App.Flag("short");
        hot.Wait();
        if (!brief) Last();
        App.Answer = _ => truths;
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static CountdownEvent hot;

    static void Add(string name, string kind, string type, string field, string owner, Action<int> wait,
        string detail = null)
    {
        string line = $"wait\tthread={name}\tkind={kind}";
        if (type != null) line += "\ttype=" + type;
        if (field != null) line += "\tfield=" + field;
        if (owner != "") line += "\towner=" + owner;
        if (detail != null) line += "\tdetail=" + detail;
        truths.Add(line);
        if (hot == null) hot = new(1); else hot.AddCount();
        threads.Add(new Thread(() => Run(wait)) { Name = name, IsBackground = true });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Run(Action<int> wait)
    {
        for (int round = 0; round < rounds; round++)
        {
            for (int i = 0; i < waits; i++) wait(ms);
            if (tiers) Thread.Sleep(100);
        }
        hot.Signal();
        for (bool said = false; ; )
        {
            int longest = ms;
            if (longest == Timeout.Infinite && !said)
            {
                said = true;
                last.Signal();
            }
            wait(longest);
        }
    }

    static CountdownEvent last;

    // Last makes each thread wait for ever.
    static void Last()
    {
        last = new(threads.Count);
        ms = Timeout.Infinite;
        last.Wait();
        Kernel.AwaitBlocked([.. threads.ConvertAll(t => t.Name)]);
    }
}

class Shop
{
    public static readonly AutoResetEvent Bell = new(false);
    readonly ManualResetEvent door = new(false);
    public static readonly ManualResetEvent Closed = new(false);
    static readonly AutoResetEvent given = new(false);
    public static readonly Semaphore Places = new(0, 5);
    public static readonly Mutex Key = new();
    public static readonly object Board = new(), Till = new();
    public static readonly ManualResetEventSlim Gate = new();
    readonly SemaphoreSlim permits = new(0);
    public static readonly SemaphoreSlim Permits = new(0);
    public static readonly CountdownEvent Count = new(1);
    public static readonly Task Order = new(() => { });
    public static readonly BlockingCollection<int> Orders = new();
    public static readonly Lock Safe = new();
    public static readonly ReaderWriterLockSlim Books = new();
    public static readonly ManualResetEventSlim Held = new();
    public static Thread Holder;
    static readonly WaitHandle[] any = [new AutoResetEvent(false), new ManualResetEvent(false)];
    static readonly WaitHandle[] all = [new ManualResetEvent(true), Key];
    static readonly Task[] tasks = [Order, Task.CompletedTask, new Task(() => { })],
        open = [Order, tasks[2], new Task(() => { })];
    static int sum;

    public static void Hold()
    {
        Key.WaitOne();
        Books.EnterWriteLock();
        lock (Till)
            lock (Safe)
            {
                Held.Set();
                Thread.Sleep(Timeout.Infinite);
            }
    }

    [MethodImpl(MethodImplOptions.NoInlining)] public static void Ring(int ms) { if (Bell.WaitOne(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public void Door(int ms) { if (door.WaitOne(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Place(int ms) { if (Places.WaitOne(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Take(int ms) { if (Key.WaitOne(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Exchange(int ms) { if (WaitHandle.SignalAndWait(given, Closed, ms, false)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Read(int ms) { lock (Board) if (Monitor.Wait(Board, ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Own(int ms) { lock (this) if (Monitor.Wait(this, ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Pass(int ms) { if (Gate.Wait(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public void Permit(int ms) { if (permits.Wait(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Permitted(int ms) { if (Permits.Wait(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Finish(int ms) { if (Count.Wait(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Deliver(int ms) { if (Order.Wait(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Next(int ms) { if (Orders.TryTake(out _, ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Enter(int ms) { if (Monitor.TryEnter(Till, ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Open(int ms) { if (Safe.TryEnter(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Look(int ms) { if (Books.TryEnterReadLock(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Leave(int ms) { if (Holder.Join(ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)] public static void Sleep(int ms) { Thread.Sleep(ms); sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Any(int ms) { if (WaitHandle.WaitAny(any, ms) == 0) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void All(int ms) { if (WaitHandle.WaitAll(all, ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void AllTasks(int ms) { if (Task.WaitAll(tasks, ms)) sum++; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void AnyTask(int ms) { if (Task.WaitAny(open, ms) == 0) sum++; }
}
