// Ways for one async method to await another. Each notes its name and the line of its await.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Tasks;

/// <summary>A chain of levels that is being gone down.</summary>
sealed class Plan(string[] levels, Func<Task> leaf)
{
    int at;

    /// <summary>Calls the next level.</summary>
    public ValueTask Next() => at < levels.Length ? Levels.ByName[levels[at++]](this) : new ValueTask(leaf());

    public Task NextTask() => Next().AsTask();
}

/// <summary>The levels by name. What a level awaits is on the line on which it marks itself.</summary>
static class Levels
{
    static readonly AsyncLocal<string> path = new();

    /// <summary>The methods that await each other, the inner one first, each with its line.</summary>
    public static string Path => path.Value;

    /// <summary>Notes a method, whose await is so many lines below; 0 as the line: on none that is certain.</summary>
    public static void Mark(string name, int below = 0, [CallerLineNumber] int line = 0) =>
        path.Value = $"{name}:{(line == 0 ? 0 : line + below)}" + (path.Value is string outer ? "\t" + outer : "");

    public static void Label(string name) => path.Value = name + ":0" + (path.Value is string outer ? "\t" + outer : "");

    public static readonly Dictionary<string, Func<Plan, ValueTask>> ByName = new()
    {
        ["task"] = p => new(Plain(p)),
        ["result"] = p => new(Result(p)),
        ["value"] = Value,
        ["value-result"] = async p => { Mark("Levels..cctor{lambda}"); await ValueResult(p); },
        ["pooled"] = Pooled,
        ["pooled-result"] = p => new(OfPooled(p)),
        ["configured"] = p => new(Configured(p)),
        ["iterator"] = p => new(Each(p)),
        ["at-yield"] = p => new(AtYield(p)),
        ["generic"] = p => new(Generic(p, "text")),
        ["generic-value"] = p => new(Generic(p, 42)),
        ["nested"] = p => new(Outer<List<string>>.Inner<int>.Go(p, new Dictionary<string, int>())),
        ["lambda"] = p => new(Lambda(p)),
        ["local"] = p => new(Local(p)),
        ["all"] = p => new(All(p)),
        ["all-results"] = p => new(AllResults(p)),
        ["any"] = p => new(Any(p)),
        ["any-three"] = p => new(AnyOfThree(p)),
        ["timeout"] = p => new(WithTimeout(p)),
        ["continued"] = p => new(Continued(p)),
        ["run"] = p => new(Ran(p)),
        ["scheduled"] = p => new(OnScheduler(p)),
        ["context"] = p => new(InContext(p)),
        ["custom"] = p => new(Custom(p)),
        ["as-task"] = p => new(AsTask(p)),
        ["handler"] = p => new(Handler(p)),
        ["finally"] = p => new(Finally(p)),
        ["many"] = p => new(Many(p)),
        ["captured"] = p => new(Captured(p)),
        ["dispose"] = p => new(Disposes(p)),
        ["either"] = p => new(Either(p, true)),
        ["or"] = p => new(Either(p, false)),
        ["either-kind"] = p => new(EitherKind(p, true)),
        ["or-kind"] = p => new(EitherKind(p, false)),
        ["instance"] = p => new(new Instance().Go(p)),
        ["held"] = p => new(new Held<string>().Go(p)),
        ["held-two"] = p => new(new Held<string>().Two(p, new Held<object>())),
        ["held-result"] = p => new(new Held<string>().Result(p)),
        ["held-other"] = p => new(new Held<string>().Other(p, new Held<object>())),
        ["class"] = p => new(OfClass<string>.Go(p)),
        ["class-lists"] = p => new(OfClass<string>.Lists(p)),
    };

    static async Task Plain(Plan p) { Mark("Levels.Plain"); await p.NextTask(); }
    static async Task<string> Result(Plan p) { Mark("Levels.Result"); await p.NextTask(); return "x"; }
    static async ValueTask Value(Plan p) { Mark("Levels.Value"); await p.Next(); }
    static async ValueTask<long> ValueResult(Plan p) { Mark("Levels.ValueResult"); await p.Next(); return 1; }
    static async Task Configured(Plan p) { Mark("Levels.Configured"); await p.NextTask().ConfigureAwait(false); }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder))]
    static async ValueTask Pooled(Plan p) { Mark("Levels.Pooled"); await p.Next(); }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    static async ValueTask<string> PooledResult(Plan p) { Mark("Levels.PooledResult"); await p.Next(); return "x"; }

    static async Task OfPooled(Plan p) { Mark("Levels.OfPooled"); await PooledResult(p); }

    static async Task AsTask(Plan p) { Mark("Levels.AsTask"); await PooledResult(p).AsTask(); }

    static async Task Each(Plan p)
    {
        Mark("Levels.Each", below: 1); int n = 0;
        await foreach (int i in Items(p)) n += i;
    }

    static async IAsyncEnumerable<int> Items(Plan p)
    {
        yield return 1;
        await Task.Yield();
        Mark("Levels.Items"); await p.Next();
        yield return 2;
    }

    // The iterator rests at its yield meanwhile: it is in no chain.
    static async Task AtYield(Plan p)
    {
        await foreach (int _ in Yields()) { Mark("Levels.AtYield"); await p.Next(); }
    }

    static async IAsyncEnumerable<int> Yields()
    {
        await Task.Yield();
        yield return 1;
    }

    static async Task Generic<T>(Plan p, T value)
    {
        Mark($"Levels.Generic<{(typeof(T) == typeof(int) ? "int" : "string")}>"); await p.Next();
        GC.KeepAlive(value);
        Uses<T>(); // it needs its type argument again
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Uses(nint handle) => GC.KeepAlive((object)handle);

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Uses<T>() => GC.KeepAlive(typeof(T));

    static Task Lambda(Plan p)
    {
        Func<Task> go = async () => { Mark("Levels.Lambda{lambda}"); await p.Next(); };
        return go();
    }

    static Task Local(Plan p)
    {
        return Go();
        async Task Go() { Mark("Levels.Local{local Go}"); await p.Next(); }
    }

    static readonly Task<int> never = new TaskCompletionSource<int>().Task;

    static async Task All(Plan p)
    {
        Mark("Levels.All", below: 1); Label("Task.WhenAll");
        await Task.WhenAll(p.NextTask(), never);
    }

    static async Task<int> Number(Plan p) { Mark("Levels.Number"); await p.Next(); return 7; }

    static async Task AllResults(Plan p)
    {
        Mark("Levels.AllResults", below: 1); Label("Task.WhenAll");
        await Task.WhenAll(never, Number(p));
    }

    static async Task Any(Plan p)
    {
        Mark("Levels.Any", below: 1); Label("Task.WhenAny");
        await Task.WhenAny(p.NextTask(), new TaskCompletionSource().Task);
    }

    static async Task AnyOfThree(Plan p)
    {
        Mark("Levels.AnyOfThree", below: 2); Label("Task.WhenAny");
        var more = new TaskCompletionSource();
        await Task.WhenAny(p.NextTask(), more.Task, new TaskCompletionSource().Task);
    }

    static async Task WithTimeout(Plan p)
    {
        Mark("Levels.WithTimeout", below: 1); Label("Task.WaitAsync");
        await p.NextTask().WaitAsync(TimeSpan.FromHours(3));
    }

    static async Task Continued(Plan p)
    {
        Mark("Levels.Continued", below: 1); Label("Task.ContinueWith");
        await p.NextTask().ContinueWith(t => GC.KeepAlive(t));
    }

    static async Task Ran(Plan p) { Mark("Levels.Ran"); await Task.Run(() => p.NextTask()); }

    static async Task OnScheduler(Plan p)
    {
        Mark("Levels.OnScheduler", below: 2);
        var factory = new TaskFactory(new Scheduler());
        await factory.StartNew(() => Scheduled(p)).Unwrap();
    }

    static async Task Scheduled(Plan p) { Mark("Levels.Scheduled"); await p.NextTask(); }

    static async Task InContext(Plan p)
    {
        SynchronizationContext.SetSynchronizationContext(new Context());
        Mark("Levels.InContext"); await p.NextTask();
    }

    static async Task Custom(Plan p) { Mark("Levels.Custom"); await new Forwarding(p.NextTask()); }

    static async Task Handler(Plan p)
    {
        try
        {
            await Task.Yield();
            throw new InvalidOperationException();
        }
        catch (InvalidOperationException)
        {
            Mark("Levels.Handler"); await p.Next();
        }
    }

    static async Task Finally(Plan p)
    {
        try { await Task.Yield(); }
        finally
        {
            Mark("Levels.Finally"); await p.Next();
        }
    }

    static async Task Many(Plan p)
    {
        for (int i = 0; i < 3; i++)
        {
            if (i == 0) await Task.Yield();
            if (i == 1) await Task.Delay(1);
            await Value(i);
        }
        Mark("Levels.Many"); await p.Next();
        await Task.Yield();

        static async ValueTask Value(int i) => await Task.Delay(i);
    }

    /// <summary>Optimised code can have one place for both awaits.</summary>
    static async Task Either(Plan p, bool first)
    {
        if (first)
        {
            Mark("Levels.Either"); await p.NextTask();
        }
        else
        {
            Mark("Levels.Either"); await p.NextTask();
        }
        GC.KeepAlive(p);
    }

    /// <summary>Likewise, but the methods that are awaited have different names.</summary>
    static async Task<long> EitherKind(Plan p, bool first)
    {
        await Task.Yield();
        long n = 0;
        if (first)
        {
            Mark("Levels.EitherKind"); n += await ValueResult(p);
        }
        else
        {
            Mark("Levels.EitherKind"); n += await TaskResult(p);
        }
        return n;
    }

    static async Task<long> TaskResult(Plan p) { Mark("Levels.TaskResult"); await p.Next(); return 1; }

    static async Task Captured(Plan p)
    {
        (long, string, object) kept = (1, "two", p);
        using var source = new CancellationTokenSource();
        Mark("Levels.Captured"); await p.Next();
        GC.KeepAlive(kept);
    }

    static async Task Disposes(Plan p)
    {
        await using var d = new Disposable(p);
        Mark("Levels.Disposes", line: 0);
    }

    sealed class Disposable(Plan p) : IAsyncDisposable
    {
        public async ValueTask DisposeAsync() { Mark("Levels.Disposable.DisposeAsync"); await p.Next(); }
    }
}

static class Outer<T>
{
    public struct Inner<U>
    {
        public static async Task Go<V>(Plan p, V value)
        {
            Levels.Mark("Outer<List<string>>.Inner<int>.Go<Dictionary<string, int>>"); await p.Next();
            GC.KeepAlive(value);
        }
    }
}

/// <summary>Its methods save one or two objects of classes that have the same code.</summary>
sealed class Held<T>
{
    public async Task Go(Plan p)
    {
        Levels.Mark("Held<string>.Go"); await p.Next();
        Levels.Uses<T>();
    }

    public async Task Two(Plan p, Held<object> other)
    {
        Levels.Mark("Held<string>.Two"); await p.Next();
        Levels.Uses<T>();
        GC.KeepAlive(other);
    }

    public async Task Result(Plan p)
    {
        Held<object> other = await Given();
        Levels.Mark("Held<string>.Result"); await p.Next();
        Levels.Uses<T>();
        GC.KeepAlive(other);
    }

    static async Task<Held<object>> Given() { await Task.Yield(); return new(); }

    public async Task Other(Plan p, Held<object> other)
    {
        Levels.Mark("Held<string>.Other"); await p.Next();
        GC.KeepAlive(other);
    }
}

/// <summary>Its methods save their class, or another one that has the same code.</summary>
class OfClass<T>
{
    public static async Task Go(Plan p)
    {
        Levels.Mark("OfClass<string>.Go"); await p.Next();
        Levels.Uses<T>();
    }

    public static async Task Lists(Plan p)
    {
        nint other = typeof(OfClass<List<T>>).TypeHandle.Value;
        Levels.Mark("OfClass<string>.Lists"); await p.Next();
        Levels.Uses(other);
    }
}

sealed class Instance
{
    public async Task Go(Plan p) { Levels.Mark("Instance.Go"); await p.Next(); }
}

/// <summary>Runs its tasks in the pool.</summary>
sealed class Scheduler : TaskScheduler
{
    protected override void QueueTask(Task task) => ThreadPool.QueueUserWorkItem(_ => TryExecuteTask(task));
    protected override bool TryExecuteTaskInline(Task task, bool queued) => false;
    protected override IEnumerable<Task> GetScheduledTasks() => [];
}

/// <summary>Runs what is posted in the pool.</summary>
sealed class Context : SynchronizationContext
{
    public override void Post(SendOrPostCallback d, object state) => ThreadPool.QueueUserWorkItem(_ => d(state));
}

/// <summary>An awaitable that is no task, but forwards to one.</summary>
readonly struct Forwarding(Task task) : INotifyCompletion
{
    public Forwarding GetAwaiter() => this;
    public bool IsCompleted => task.IsCompleted;
    public void OnCompleted(Action continuation) => task.ConfigureAwait(false).GetAwaiter().OnCompleted(continuation);
    public void GetResult() => task.GetAwaiter().GetResult();
}
