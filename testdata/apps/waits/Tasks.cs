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
        Zoo.Waits(new() { Thread = "task-all", Kind = "Task.Wait", Timeout = -1 }, () => Task.WaitAll(ship, plain));
        Zoo.Waits(new() { Thread = "task-any", Kind = "Task.Wait", Timeout = -1 }, () => Task.WaitAny(ship, plain));
    }
}
