using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Shop;

sealed class Order { }

sealed class Stock { }

sealed class Attachment
{
    readonly ManualResetEventSlim closed = new(false);

    ~Attachment() => Stuck.Close(closed);
}

/// <summary>Nothing gets on.</summary>
static class Stuck
{
    static readonly Order order = new();
    static readonly Stock stock = new();
    static readonly object ledger = new();
    static readonly SemaphoreSlim permit = new(1);

    /// <summary>Two threads want the same two locks in opposite orders, and two more want one of these.</summary>
    public static void Deadlock()
    {
        var both = new Barrier(3);
        App.Background("orders-1", () => { lock (order) { both.SignalAndWait(); Reserve(); } });
        App.Background("orders-2", () => { lock (stock) { both.SignalAndWait(); Confirm(); } });
        both.SignalAndWait();
        for (int i = 0; i < 2; i++) App.Background($"victim-{i}", Confirm);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Reserve() { lock (stock) { } }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Confirm() { lock (order) { } }

    /// <summary>A thread holds a lock and waits for a permit, which an await has that goes on only with the lock.</summary>
    public static void Permit()
    {
        var started = new TaskCompletionSource();
        _ = Restock(started.Task);
        App.Background("posts", Post);
        Kernel.AwaitBlocked("posts");
        App.Background("sums", Sum);
        App.Background("audits", Sum);
        started.SetResult();
    }

    /// <summary>An exception ends a method between WaitAsync and Release: nobody gets the permit any more.</summary>
    public static void Lost()
    {
        _ = books.Book(13);
        for (int i = 0; i < 5; i++) _ = books.Book(i);
    }

    static readonly Books books = new(); // or else all of them are garbage

    /// <summary>The same, but everybody gives up when a token says so.</summary>
    public static void LostToken()
    {
        _ = shelf.Book(13);
        for (int i = 0; i < 5; i++) _ = shelf.Book(i);
    }

    static readonly Shelf shelf = new();

    static readonly Channel<int> mail = Channel.CreateBounded<int>(4);

    /// <summary>The reader of a channel has ended. More and more methods wait to write.</summary>
    public static void Queue() => App.Background("letters", () =>
    {
        for (int i = 0; ; i++, Thread.Sleep(20)) _ = Post(i);
    });

    static async Task Post(int letter) => await mail.Writer.WriteAsync(letter);

    static readonly Channel<int> parcels = Channel.CreateBounded<int>(4);
    static Task carrier;

    /// <summary>The reader of a channel has failed. As many methods as before wait to write.</summary>
    public static void Reader()
    {
        carrier = Carry();
        for (int i = 0; i < 5; i++) _ = Send(i);
    }

    static async Task Carry()
    {
        await foreach (int parcel in parcels.Reader.ReadAllAsync())
        {
            if (parcel == 3) throw new FormatException("no such street");
        }
    }

    static async Task Send(int parcel)
    {
        while (true) await parcels.Writer.WriteAsync(parcel);
    }

    static readonly Barrier phase = new(4);

    /// <summary>One of four threads that wait for one another has ended.</summary>
    public static void Phases()
    {
        for (int i = 0; i < 4; i++)
        {
            int n = i;
            App.Background($"phase-{i}", () => { for (int round = 0; n < 3 || round < 10; round++) Meet(); });
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Meet()
    {
        phase.SignalAndWait();
        GC.KeepAlive(phase);
    }

    static readonly TaskCompletionSource<int> licence = new();

    /// <summary>Threads wait for async methods that wait for what nobody sets.</summary>
    public static void Licence()
    {
        for (int i = 0; i < 12; i++) App.Background($"job-{i}", () => Check().GetAwaiter().GetResult());
    }

    static async Task<int> Check() => await licence.Task + 1;

    sealed class Shelf
    {
        readonly SemaphoreSlim gate = new(1);
        readonly CancellationTokenSource source = new();

        public async Task<int> Book(int id)
        {
            await gate.WaitAsync(source.Token);
            int left = await Left(id);
            gate.Release();
            return left;
        }

        static async Task<int> Left(int id)
        {
            await Task.Delay(5);
            return id == 13 ? throw new InvalidOperationException("no such order") : id;
        }
    }

    sealed class Books
    {
        readonly SemaphoreSlim gate = new(1);

        public async Task<int> Book(int id)
        {
            await gate.WaitAsync();
            int left = await Left(id);
            gate.Release();
            return left;
        }

        static async Task<int> Left(int id)
        {
            await Task.Delay(5);
            return id == 13 ? throw new InvalidOperationException("no such order") : id;
        }
    }

    static async Task Restock(Task started)
    {
        await permit.WaitAsync();
        await started;
        await Task.Yield();
        Sum();
        permit.Release();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Post()
    {
        lock (ledger)
        {
            permit.Wait();
            permit.Release();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sum() { lock (ledger) { } }

    /// <summary>A finalizer waits for something that does not come.</summary>
    public static void Finalizer()
    {
        Drop();
        GC.Collect();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Drop() => GC.KeepAlive(new Attachment());

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Close(ManualResetEventSlim closed) => closed.Wait();

    /// <summary>A handler of the end waits for the thread that ends the process.</summary>
    public static void Exit()
    {
        var exits = new Thread(() => { Outside.Ready.Wait(); Environment.Exit(3); }) { Name = "exits" };
        exits.IsBackground = true;
        AppDomain.CurrentDomain.ProcessExit += (_, _) => Flush(exits);
        exits.Start();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Flush(Thread writer)
    {
        writer.Join();
        GC.KeepAlive(writer);
    }

    static PosixSignalRegistration signal;

    /// <summary>The handler of a signal does not return.</summary>
    public static void Signal() => signal = PosixSignalRegistration.Create(PosixSignal.SIGTERM, _ => Drain());

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Drain()
    {
        lock (gone) Monitor.Wait(gone);
        GC.KeepAlive(gone);
    }

    static readonly object gone = new();

    /// <summary>Main returns, and this thread waits for ever.</summary>
    public static void Foreground() => new Thread(Drain) { Name = "drains" }.Start();
}
