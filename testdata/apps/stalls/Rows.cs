using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Depot;

/// <summary>Iterators, each with a permit until somebody has ended it.</summary>
static class Rows
{
    static bool ready;
    static readonly SemaphoreSlim doors = new(5, 5);
    static readonly List<IAsyncEnumerator<int>> open = [];
    static readonly List<Task> work = [];

    static async IAsyncEnumerable<int> All()
    {
        await doors.WaitAsync();
        try
        {
            if (!ready) await Task.Delay(1);
            for (int i = 0; i < 10; i++) yield return i;
        }
        finally
        {
            doors.Release();
        }
    }

    /// <summary>Five callers leave an iterator alone after its first row, and all others wait.</summary>
    public static void Lost() => Begin(false);

    /// <summary>Healthy, for all that can be seen: the iterators are kept, and somebody may go on with them.</summary>
    public static void Held() => Begin(true);

    /// <summary>Likewise, but no iterator has had to wait yet.</summary>
    public static void LostReady()
    {
        ready = true;
        Begin(false);
    }

    /// <summary>Healthy: likewise.</summary>
    public static void HeldReady()
    {
        ready = true;
        Begin(true);
    }

    static readonly SemaphoreSlim shelf = new(2, 2);
    static readonly List<IEnumerator<int>> shelves = [];

    /// <summary>Healthy, for all that can be seen: iterators that are not async are kept.</summary>
    public static void HeldPlain()
    {
        for (int i = 0; i < 2; i++)
        {
            IEnumerator<int> one = Shelf().GetEnumerator();
            one.MoveNext();
            shelves.Add(one);
        }
        for (int i = 0; i < 9; i++) work.Add(Store());
    }

    static IEnumerable<int> Shelf()
    {
        shelf.Wait();
        yield return 1;
        shelf.Release();
    }

    static async Task Store()
    {
        await shelf.WaitAsync();
        await Task.Delay(1);
        shelf.Release();
    }

    static void Begin(bool keep)
    {
        for (int i = 0; i < 5; i++) Start(keep);
        for (int i = 0; i < 9; i++) work.Add(Count());
        Forget(100);
    }

    static void Start(bool keep)
    {
        IAsyncEnumerator<int> rows = All().GetAsyncEnumerator();
        if (rows.MoveNextAsync().AsTask().Result && keep) open.Add(rows);
    }

    // Old references are overwritten on the stack.
    static int Forget(int depth) => depth == 0 ? 0 : 1 + Forget(depth - 1);

    static async Task<int> Count()
    {
        int n = 0;
        await foreach (int row in All()) n += row;
        return n;
    }
}

/// <summary>A thread that completes what others wait for.</summary>
static class Echo
{
    static readonly ConcurrentDictionary<int, TaskCompletionSource> calls = new();
    static readonly ConcurrentQueue<int> sent = new();
    static readonly List<Task> work = [];
    static TaskCompletionSource bell = new();

    /// <summary>The thread waits for what only the thread completes, and so do others.</summary>
    public static void Circle()
    {
        for (int i = 0; i < 6; i++) work.Add(Call(i));
        App.Background("echo", () =>
        {
            Call(100).Wait();
            Answer();
        });
    }

    /// <summary>Healthy: the thread waits for the next call, and the calls wait for news.</summary>
    public static void Idle()
    {
        for (int i = 0; i < 6; i++) work.Add(Call(i));
        App.Background("echo", () =>
        {
            while (true)
            {
                bell.Task.Wait();
                bell = new TaskCompletionSource();
                Answer();
            }
        });
        work.Add(Ring());
    }

    static async Task Call(int number)
    {
        var done = calls[number] = new TaskCompletionSource();
        await done.Task;
    }

    static void Answer()
    {
        while (sent.TryDequeue(out int number)) calls[number].SetResult();
    }

    static async Task Ring()
    {
        await Task.Delay(-1);
        bell.SetResult();
    }
}
