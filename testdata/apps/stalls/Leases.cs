using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>A pool of carts: one method takes a permit, another one gives it back.</summary>
sealed class Carts(int count)
{
    readonly SemaphoreSlim free = new(count, count);

    public async Task<int> RentAsync()
    {
        await free.WaitAsync();
        return free.CurrentCount;
    }

    public int Rent()
    {
        free.Wait();
        return free.CurrentCount;
    }

    public void Return(int cart)
    {
        if (cart >= 0) free.Release();
    }
}

/// <summary>Async methods that wait for permits of a pool.</summary>
static class Leases
{
    static readonly Carts carts = new(4);
    static readonly TaskCompletionSource lorry = new();
    static readonly List<Task> work = [];

    /// <summary>Four calls fail between renting and returning, and all others wait.</summary>
    public static void Lost()
    {
        for (int i = 0; i < 20; i++) work.Add(Load(i));
    }

    static async Task Load(int i)
    {
        int cart = await carts.RentAsync();
        if (i < 4) throw new InvalidOperationException("the load is too heavy");
        carts.Return(cart);
    }

    /// <summary>Likewise, of threads.</summary>
    public static void LostThreads()
    {
        for (int i = 0; i < 10; i++)
        {
            int load = i;
            App.Background($"loader-{i}", () =>
            {
                try { LoadNow(load); }
                catch (InvalidOperationException) { }
            });
            Thread.Sleep(20); // in this order
        }
    }

    static void LoadNow(int i)
    {
        int cart = carts.Rent();
        if (i < 4) throw new InvalidOperationException("the load is too heavy");
        carts.Return(cart);
    }

    /// <summary>Four calls have carts, and wait for something else.</summary>
    public static void Held()
    {
        for (int i = 0; i < 20; i++) work.Add(Deliver());
    }

    static async Task Deliver()
    {
        int cart = await Borrow();
        await lorry.Task;
        Give(cart);
    }

    // Neither method has the name of the pool's.
    static async Task<int> Borrow() => await carts.RentAsync();

    static void Give(int cart) => carts.Return(cart);

    /// <summary>Healthy, for all that can be seen: four iterators have carts, and are kept.</summary>
    public static void HeldByRows()
    {
        for (int i = 0; i < 4; i++)
        {
            IAsyncEnumerator<int> one = Rides().GetAsyncEnumerator();
            one.MoveNextAsync().AsTask().Wait();
            rides.Add(one);
        }
        for (int i = 4; i < 20; i++) work.Add(Load(i));
    }

    static readonly List<IAsyncEnumerator<int>> rides = [];

    static async IAsyncEnumerable<int> Rides()
    {
        int cart = await carts.RentAsync();
        yield return cart;
        carts.Return(cart);
    }

    /// <summary>Each call takes two carts, and all wait for the second.</summary>
    public static void Twice()
    {
        for (int i = 0; i < 4; i++) work.Add(Haul());
        // Now each has one, and none is left.
    }

    static async Task Haul()
    {
        int first = await carts.RentAsync();
        await Task.Delay(50);
        int second = await carts.RentAsync();
        carts.Return(first);
        carts.Return(second);
    }

    static readonly SemaphoreSlim turns = new(3, 3);

    /// <summary>Healthy: a timer gives permits now and then, and nobody gives back what he has taken.</summary>
    public static void Turns()
    {
        for (int i = 0; i < 1000; i++) work.Add(Take());
        work.Add(Fill());
    }

    static async Task Take() => await turns.WaitAsync();

    static async Task Fill()
    {
        using var timer = new PeriodicTimer(TimeSpan.FromSeconds(20));
        while (await timer.WaitForNextTickAsync()) turns.Release();
    }
}

/// <summary>Questions, and answers by number.</summary>
sealed class Answers
{
    readonly ConcurrentDictionary<int, TaskCompletionSource<int>> waiting = new();
    readonly Channel<int> lines = Channel.CreateUnbounded<int>();
    readonly Task reading;

    public Answers() => reading = ReadAsync();

    public Task<int> AskAsync(int number)
    {
        TaskCompletionSource<int> answer = waiting[number] = new(TaskCreationOptions.RunContinuationsAsynchronously);
        lines.Writer.TryWrite(number);
        return answer.Task;
    }

    async Task ReadAsync()
    {
        await foreach (int line in lines.Reader.ReadAllAsync()) Complete(line);
    }

    void Complete(int line)
    {
        if (line == 3) throw new FormatException("no such number");
        waiting[line].TrySetResult(line);
    }
}

/// <summary>Async methods that wait for a TaskCompletionSource.</summary>
static class Sources
{
    static readonly List<Task> work = [];
    static Answers answers;
    static TaskCompletionSource<int> next = new();

    /// <summary>Who was to complete them has failed.</summary>
    public static void Unanswered()
    {
        answers = new();
        for (int i = 0; i < 12; i++) work.Add(Ask(i));
    }

    static async Task<int> Ask(int i) => await answers.AskAsync(i);

    /// <summary>Nobody has them any more.</summary>
    public static void Forgotten()
    {
        for (int i = 0; i < 12; i++) work.Add(Await(new TaskCompletionSource<int>().Task));
        GC.Collect();
    }

    static async Task<int> Await(Task<int> parcel) => await parcel;

    /// <summary>Healthy: news come with a timer.</summary>
    public static void News()
    {
        for (int i = 0; i < 12; i++) work.Add(Listen());
        work.Add(Publish());
    }

    static async Task<int> Listen() => await next.Task;

    static async Task Publish()
    {
        while (true)
        {
            await Task.Delay(30_000);
            TaskCompletionSource<int> now = next;
            next = new();
            now.SetResult(1);
        }
    }
}

/// <summary>Threads that become more and more.</summary>
static class Crowd
{
    static readonly Queue<ManualResetEventSlim> gongs = [];

    /// <summary>Each waits for what nobody does.</summary>
    public static void Pile() => Begin(int.MaxValue);

    /// <summary>Healthy: the longest waiter ends where a new one comes, and there are a few more each time.</summary>
    public static void Shift() => Begin(40);

    static void Begin(int atOnce)
    {
        const int first = 30;
        var crowd = new List<Thread>();
        while (crowd.Count < first) crowd.Add(Another());
        while (crowd.Exists(t => (t.ThreadState & ThreadState.WaitSleepJoin) == 0)) Thread.Sleep(1);
        App.Background("foreman", () =>
        {
            for (int i = first; ; i++)
            {
                Thread.Sleep(20);
                Another();
                if (i >= atOnce && i % 3 != 0) gongs.Dequeue().Set();
            }
        });
    }

    /// <summary>Of two that come one goes again, and one stays.</summary>
    public static void Left()
    {
        var passing = new Queue<ManualResetEventSlim>();
        var crowd = new List<Thread>();
        for (int i = 0; i < 30; i++) crowd.Add(Another());
        for (int i = 0; i < 5; i++) crowd.Add(Another(passing));
        while (crowd.Exists(t => (t.ThreadState & ThreadState.WaitSleepJoin) == 0)) Thread.Sleep(1);
        App.Background("foreman", () =>
        {
            for (; ; Thread.Sleep(100))
            {
                Another();
                Another(passing);
                passing.Dequeue().Set();
            }
        });
    }

    static Thread Another() => Another(gongs);

    static Thread Another(Queue<ManualResetEventSlim> gongs)
    {
        var gong = new ManualResetEventSlim(false);
        gongs.Enqueue(gong);
        return App.Background("porter", () => Carry(gong), 256 * 1024);
    }

    static void Carry(ManualResetEventSlim gong) => gong.Wait();
}

/// <summary>A queue that nobody empties, and a queue that somebody empties.</summary>
static class Queues
{
    static readonly Channel<string> letters = Channel.CreateUnbounded<string>();

    public static void Grow() => Fill(() => Reads(false));

    /// <summary>Healthy.</summary>
    public static void Flow() => Fill(() => Reads(true));

    static async Task Reads(bool goesOn)
    {
        await foreach (string letter in letters.Reader.ReadAllAsync())
        {
            while (!goesOn) await Task.Delay(100);
        }
    }

    static void Fill(Func<Task> read)
    {
        _ = read();
        App.Background("letters", () =>
        {
            for (int i = 0; ; i++)
            {
                letters.Writer.TryWrite($"letter {i}");
                if (i % 10 == 0) Thread.Sleep(10);
            }
        });
        while (App.Text("of", "") == "queue-grows" && letters.Reader.Count < 2000) Thread.Sleep(10);
    }
}

/// <summary>The method that empties a queue has failed.</summary>
static class Unsent
{
    static readonly ConcurrentQueue<string> cards = new();
    static Task sender;

    public static void Grow()
    {
        sender = Send();
        App.Background("cards", () =>
        {
            for (int i = 0; ; i++)
            {
                cards.Enqueue($"card {i}");
                if (i % 10 == 0) Thread.Sleep(10);
            }
        });
        while (cards.Count < 2000) Thread.Sleep(10);
    }

    static async Task Send()
    {
        for (int sent = 0; ; await Task.Delay(10))
        {
            while (cards.TryDequeue(out _))
            {
                if (++sent == 50) throw new IOException("the office is closed");
            }
        }
    }
}
