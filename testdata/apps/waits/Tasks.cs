using System.Reflection;
using System.Threading;
using System.Threading.Tasks;

namespace Waits;

/// <summary>Threads that wait for tasks.</summary>
static class Tasks
{
    static readonly TaskCompletionSource never = new();
    static readonly TaskCompletionSource<string> nothing = new();

    static async Task Ship()
    {
        await never.Task;
        Zoo.Rest();
    }

    static async Task<string> Price()
    {
        await never.Task;
        return "";
    }

    public static void Fill()
    {
        Task ship = Ship(), plain = never.Task;
        Task<string> price = Price();
        Zoo.Waits(new() { Thread = "task-wait", Kind = "Task.Wait", Object = ship, Timeout = -1 }, () => ship.Wait());
        Zoo.Waits(new() { Thread = "task-get", Kind = "Task.Wait", Object = ship, Timeout = -1 },
            () => ship.GetAwaiter().GetResult());
        Zoo.Waits(new() { Thread = "task-result", Kind = "Task.Wait", Object = price, Timeout = -1 },
            () => { _ = price.Result; });
        Zoo.Waits(new() { Thread = "task-plain", Kind = "Task.Wait", Object = plain, Timeout = 3_600_000 },
            () => plain.Wait(3_600_000));
        Zoo.Waits(new() { Thread = "task-source", Kind = "Task.Wait", Object = nothing.Task, Timeout = -1 },
            () => { _ = nothing.Task.Result; });
        Zoo.Waits(new() { Thread = "task-awaiter", Kind = "Task.Wait", Object = price, Timeout = -1 },
            () => price.ConfigureAwait(false).GetAwaiter().GetResult());
        Several(ship, plain);
    }

    static readonly FieldInfo continuation =
        typeof(Task).GetField("m_continuationObject", BindingFlags.Instance | BindingFlags.NonPublic);

    /// <summary>One of the tasks is complete when the wait begins, and one completes later.</summary>
    static void Several(Task ship, Task plain)
    {
        var later = new TaskCompletionSource();
        Task[] all = [ship, Task.CompletedTask, later.Task, plain, Price()];
        Zoo.Waits(new() { Thread = "task-all", Kind = "Task.WaitAll", Timeout = -1, Tasks = [ship, plain, all[4]],
            Detail = "3 of 4 tasks not complete" }, () => Task.WaitAll(all));
        Zoo.Waits(new() { Thread = "task-two", Kind = "Task.WaitAll", Timeout = 3_600_000, Tasks = [ship, plain],
            Detail = "2 of 2 tasks not complete" }, () => Task.WaitAll([ship, plain], 3_600_000));
        Zoo.Waits(new() { Thread = "task-any", Kind = "Task.WaitAny", Timeout = -1, Tasks = [ship, plain],
            Detail = "2 tasks" }, () => Task.WaitAny(ship, plain));
        Zoo.Start("completes", () =>
        {
            while (continuation.GetValue(later.Task) == null) Thread.Yield(); // before the wait has begun
            later.SetResult();
            Zoo.Rest();
        });
    }
}
