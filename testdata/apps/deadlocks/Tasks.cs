using System.Threading;
using System.Threading.Tasks;

namespace Deadlocks;

/// <summary>Circles of tasks and locks.</summary>
static class Tasks
{
    public static void Fill()
    {
        Plain();
        Result();
        Awaited();
        Resumed();
        Itself();
        All();
        WaitAll();
        WaitAny();
        Continued();
    }

    /// <summary>Holds a lock over the wait for a task that wants it.</summary>
    static void Plain()
    {
        var order = new Order();
        Zoo.Start("task", "1", () =>
        {
            lock (order)
                Task.Run(() => { Zoo.Name("task", "2"); lock (order) order.Sum++; }).Wait();
        });
        Zoo.Start("task", "v", () => { Zoo.Turn(300); lock (order) { } });
        Zoo.Says("task", Truth.Deadlock, ["1", "2"], ["v"]);
    }

    static void Result()
    {
        var order = new Order();
        Zoo.Start("result", "1", () =>
        {
            lock (order)
                _ = Task.Run(() => { Zoo.Name("result", "2"); lock (order) return order.Sum; }).Result;
        });
        Zoo.Says("result", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>The task that is waited for is of an async method, which awaits another one, which awaits a task.</summary>
    static void Awaited()
    {
        var order = new Order();
        Zoo.Start("awaited", "1", () => { lock (order) Outer(order).GetAwaiter().GetResult(); });
        Zoo.Says("awaited", Truth.Deadlock, ["1", "2"]);
    }

    static async Task<int> Outer(Order order) => await Inner(order) + 1;

    static async Task<int> Inner(Order order)
    {
        await Task.Run(() => { Zoo.Name("awaited", "2"); lock (order) order.Sum++; }).ConfigureAwait(false);
        return order.Sum;
    }

    /// <summary>An async method that has been resumed wants the lock.</summary>
    static void Resumed()
    {
        var order = new Order();
        Zoo.Start("resumed", "1", () => { lock (order) _ = After(order).Result; });
        Zoo.Start("resumed", "v", () => { Zoo.Turn(500); lock (order) { } });
        Zoo.Says("resumed", Truth.Deadlock, ["1", "2"], ["v"]);
    }

    static async Task<int> After(Order order)
    {
        await Task.Delay(50);
        Zoo.Name("resumed", "2");
        lock (order) return order.Sum;
    }

    /// <summary>A task waits for its own end.</summary>
    static void Itself()
    {
        var known = new TaskCompletionSource<Task>();
        Task self = Task.Run(() => { Zoo.Name("own", "1"); known.Task.Result.Wait(); });
        known.SetResult(self);
        Zoo.Start("own", "v", () => self.Wait());
        Zoo.Says("own", Truth.Deadlock, ["1"], ["v"]);
    }

    /// <summary>WhenAll ends only if each of its tasks does.</summary>
    static void All()
    {
        var order = new Order();
        Zoo.Start("all", "1", () =>
        {
            lock (order)
                Task.WhenAll(Task.Run(() => { }), Task.Run(() => { Zoo.Name("all", "2"); lock (order) { } })).Wait();
        });
        Zoo.Says("all", Truth.Deadlock, ["1", "2"]);
    }

    /// <summary>Waits for several tasks, one of which wants the lock.</summary>
    static void WaitAll()
    {
        var order = new Order();
        Zoo.Start("allof", "1", () =>
        {
            lock (order)
                Task.WaitAll(Task.Run(() => { }), Never(), Task.Run(() => { Zoo.Name("allof", "2"); lock (order) { } }));
        });
        Zoo.Says("allof", Truth.Deadlock, ["1", "2"]);
    }

    static Task Never() => new TaskCompletionSource().Task;

    /// <summary>Waits for any of two tasks, and both are stuck: one behind the other one, which wants the lock.</summary>
    static void WaitAny()
    {
        Order order = new(), other = new();
        Zoo.Start("anyof", "1", () =>
        {
            lock (order)
                Task.WaitAny(
                    Task.Run(() => { Zoo.Name("anyof", "2"); lock (other) lock (order) { } }),
                    Task.Run(() => { Zoo.Name("anyof", "3"); Zoo.Turn(300); lock (other) { } }));
        });
        Zoo.Says("anyof", Truth.Deadlock, ["1", "2", "3"]);
    }

    static void Continued()
    {
        var order = new Order();
        Zoo.Start("then", "1", () =>
        {
            lock (order)
            {
                var first = Task.Run(() => { Zoo.Name("then", "2"); Zoo.Turn(200); lock (order) { } });
                first.ContinueWith(_ => order.Sum).Wait();
            }
        });
        Zoo.Says("then", Truth.Deadlock, ["1", "2"]);
    }
}
