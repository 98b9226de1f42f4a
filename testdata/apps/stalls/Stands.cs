// Clients and callbacks that nobody attends to, and others that somebody does.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Net;
using System.Net.Sockets;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>Clients that have connected to a counter.</summary>
static class Counter
{
    static readonly TcpListener counter = new(IPAddress.Loopback, 0);
    static readonly List<TcpClient> clients = [], served = [];

    /// <summary>The only one who accepted has gone.</summary>
    public static void Closed()
    {
        counter.Start(100);
        for (int i = 0; i < 7; i++) Queue();
        counter.AcceptTcpClient();
        App.Line("LISTENS " + counter.LocalEndpoint);
    }

    /// <summary>Healthy: one client after the other is served, few have to wait, and the first stay.</summary>
    public static void Open()
    {
        counter.Start(100);
        for (int i = 0; i < 5; i++) Queue();
        App.Background("clerk", () =>
        {
            while (true)
            {
                served.Add(counter.AcceptTcpClient());
                Thread.Sleep(20);
                if (clients.Count < 2000) Queue();
            }
        });
    }

    static void Queue()
    {
        var client = new TcpClient();
        client.Connect((IPEndPoint)counter.LocalEndpoint);
        clients.Add(client);
    }
}

/// <summary>A SpinLock.</summary>
static class Spins
{
    static SpinLock map = new(false);
    static volatile bool end;

    /// <summary>An exception has skipped the Exit.</summary>
    public static void Left()
    {
        try { Enter(true); }
        catch (InvalidOperationException) { }
        for (int i = 0; i < 3; i++) App.Background($"entrance-{i}", () => Enter(false));
    }

    /// <summary>Healthy as far as the lock is concerned: a thread is inside, and takes long.</summary>
    public static void Held()
    {
        var inside = new ManualResetEventSlim();
        App.Background("surveyor", () => Survey(inside));
        inside.Wait();
        App.Background("entrance", () => Enter(false));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Enter(bool fails)
    {
        bool taken = false;
        map.Enter(ref taken);
        if (fails) throw new InvalidOperationException("no such level");
        map.Exit();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Survey(ManualResetEventSlim inside)
    {
        bool taken = false;
        map.Enter(ref taken);
        inside.Set();
        while (!end) Thread.Sleep(10);
        map.Exit();
    }
}

/// <summary>A pool whose sessions nobody gives back.</summary>
static class Rents
{
    static readonly object pool = new();

    public static void Out()
    {
        for (int i = 0; i < 3; i++) App.Background($"guide-{i}", Guide);
    }

    static void Guide()
    {
        while (true)
        {
            try { Rent(); }
            catch (TimeoutException) { }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Rent()
    {
        lock (pool)
        {
            if (!Monitor.Wait(pool, 400)) throw new TimeoutException("no session");
        }
    }
}

/// <summary>Healthy: a queue that is empty most of the time.</summary>
static class Printer
{
    static readonly BlockingCollection<int> labels = new();

    public static void Begin()
    {
        App.Background("printer", () => { foreach (int _ in labels.GetConsumingEnumerable()) Thread.Sleep(5); });
        App.Background("labels", () => { for (; ; Thread.Sleep(50)) labels.Add(1); });
    }
}

/// <summary>Threads that take from one queue and add to another.</summary>
static class Ring
{
    static readonly BlockingCollection<int> tank = new(4), filter = new(4);

    /// <summary>Both queues are full, and each thread waits for the other. A third thread adds, a fourth takes elsewhere.</summary>
    public static void Full()
    {
        for (int i = 0; i < 4; i++) filter.Add(i);
        App.Background("tank", () => Carry(tank, filter, 2));
        App.Background("filter", () => Carry(filter, tank, 2));
        App.Background("maltster", Deliver);
        Printer.Begin();
    }

    /// <summary>The only thread that takes from a queue adds to the queue.</summary>
    public static void Own()
    {
        App.Background("tank", () => Carry(tank, tank, 2));
        App.Background("maltster", Deliver);
    }

    /// <summary>Healthy: a full queue of which a thread takes slowly.</summary>
    public static void Slow()
    {
        App.Background("tank", () => { foreach (int _ in tank.GetConsumingEnumerable()) Thread.Sleep(100); });
        App.Background("maltster", Deliver);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Carry(BlockingCollection<int> from, BlockingCollection<int> to, int each)
    {
        foreach (int batch in from.GetConsumingEnumerable())
        {
            for (int i = 0; i < each; i++) to.Add(batch);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Deliver()
    {
        while (true) tank.Add(1);
    }
}

/// <summary>A rail with room for one order. Cooks take two at a time.</summary>
static class Rail
{
    static readonly object rail = new();
    static int orders;

    /// <summary>Each side waits for what the other side does.</summary>
    public static void Crossed()
    {
        for (int i = 0; i < 3; i++) App.Background($"waiter-{i}", Hang);
        Idle();
    }

    /// <summary>Healthy: cooks wait for orders.</summary>
    public static void Idle()
    {
        for (int i = 0; i < 2; i++) App.Background($"cook-{i}", Take);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Hang()
    {
        while (true)
        {
            lock (rail)
            {
                while (orders >= 1) Monitor.Wait(rail);
                orders++;
                Monitor.Pulse(rail);
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Take()
    {
        while (true)
        {
            lock (rail)
            {
                while (orders < 2) Monitor.Wait(rail);
                orders -= 2;
                Monitor.Pulse(rail);
            }
        }
    }
}

/// <summary>A callback of a token, and who takes the callback back.</summary>
static class Recall
{
    static readonly object gate = new();
    static readonly CancellationTokenSource stop = new();
    static readonly ManualResetEventSlim called = new(), held = new();

    /// <summary>The callback needs the lock of the thread that waits for the end of the callback.</summary>
    public static void Crossed() => Begin(() => { lock (gate) App.Line("RECALLED"); });

    /// <summary>Healthy: the callback takes its time.</summary>
    public static void Slow() => Begin(() => Thread.Sleep(Timeout.Infinite));

    static void Begin(Action callback)
    {
        CancellationTokenRegistration order = stop.Token.Register(() =>
        {
            called.Set();
            held.Wait();
            callback();
        });
        App.Background("recaller", stop.Cancel);
        called.Wait();
        App.Background("closer", () => Close(order));
        held.Wait();
    }

    static void Close(CancellationTokenRegistration order)
    {
        lock (gate)
        {
            held.Set();
            order.Dispose();
        }
    }
}

/// <summary>A timer with callbacks that take longer than the timer's period, and a timer without.</summary>
static class Rounds
{
    static Timer timer;

    public static void Pile() => timer = new Timer(_ => Walk(), null, 0, 50);

    /// <summary>Healthy: each callback ends before the next.</summary>
    public static void Pace() => timer = new Timer(_ => Thread.Sleep(1), null, 0, 50);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Walk() => Thread.Sleep(Timeout.Infinite);
}

/// <summary>A thread that waits for a lock, and the lock's holder.</summary>
static class Desk
{
    static readonly object desk = new();
    static readonly ManualResetEventSlim taken = new();
    static Socket partner;

    /// <summary>The holder waits for an answer that nobody sends.</summary>
    public static void Deaf() => Begin(Ask);

    /// <summary>Healthy: the holder does its rounds, and the other stands by.</summary>
    public static void Standby() => Begin(() =>
    {
        while (true) Thread.Sleep(20);
    });

    static void Begin(Action hold)
    {
        App.Background("holder", () =>
        {
            lock (desk)
            {
                taken.Set();
                hold();
            }
        });
        taken.Wait();
        App.Background("second", Sit);
    }

    static void Sit()
    {
        lock (desk) App.Line("SITS");
    }

    static void Ask()
    {
        using var office = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        office.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        office.Listen();
        using var line = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        line.Connect(office.LocalEndPoint);
        partner = office.Accept();
        line.Receive(new byte[1]);
    }
}

/// <summary>Sessions, whose loops are async methods.</summary>
sealed class Session
{
    static readonly List<Session> sessions = [];
    Task loop = Task.CompletedTask;
    bool last;

    /// <summary>The loops wait for their own ends.</summary>
    public static void Own()
    {
        for (int i = 0; i < 3; i++) Begin(new Session { last = true });
    }

    /// <summary>Healthy: somebody waits for the ends of the loops, which go on.</summary>
    public static void Awaited()
    {
        for (int i = 0; i < 3; i++) _ = Begin(new Session()).Close();
    }

    static Session Begin(Session s)
    {
        sessions.Add(s);
        s.loop = s.Loop();
        return s;
    }

    async Task Loop()
    {
        do await Task.Delay(50); while (!last);
        await Close();
    }

    async Task Close() => await loop;
}
