using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Deadlocks;

/// <summary>
/// Circles through permits of semaphores and through tasks that are completed by hand. An async method that is a member
/// is called by the class that it is nested in, which is that of its set, and by its name.
/// </summary>
static class Permits
{
    static readonly List<object> kept = [];

    public static void Fill()
    {
        Held.Fill();
        Queued.Fill();
        Crossed.Fill();
        Source.Fill();
        Resumed.Fill();
        Using.Fill();
        Record.Fill();
        Reentrant.Fill();
        Waited.Fill();
        Plain.Fill();
        Helpers.Fill();
        Several.Fill();
        Joint.Fill();
        Property.Fill();
        Token.Fill();
        Pool.Fill();
        Context.Fill();
        Given.Fill();
        Inlined.Fill();
#if NET9_0_OR_GREATER
        Common.Fill(); // static fields are not found before
#endif
    }

    static void Keep(object o) { lock (kept) kept.Add(o); }

    /// <summary>Runs something in the pool that waits for a lock, and never ends.</summary>
    static Task Wants(object gate, string set) => Task.Run(() => { Zoo.Name(set, "2"); lock (gate) { } });

    /// <summary>A thread holds a lock and waits for a permit, whose holder awaits a task that wants the lock.</summary>
    sealed class Held
    {
        readonly SemaphoreSlim permits = new(1);
        readonly Order order = new();
        readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            var h = new Held();
            Zoo.Start("held", "1", () => { lock (h.order) { Keep(h.Holder()); h.taken.Wait(); h.permits.Wait(); } });
            Zoo.Start("held", "v", () => { Zoo.Turn(300); lock (h.order) { } });
            Zoo.Says("held", Truth.Likely, ["1", "2", "Holder"], ["v"]);
        }

        async Task Holder()
        {
            await permits.WaitAsync().ConfigureAwait(false);
            try
            {
                taken.Set();
                await Wants(order, "held");
            }
            finally
            {
                permits.Release();
            }
        }
    }

    /// <summary>
    /// A thread has a SynchronizationContext that runs everything on it, and waits for a method that is to go on there.
    /// Another one waits for a method whose await has not ended.
    /// </summary>
    sealed class Context : SynchronizationContext
    {
        readonly Queue<(SendOrPostCallback, object)> posted = new();
        readonly TaskCompletionSource never = new();

        public override void Post(SendOrPostCallback d, object state) { lock (posted) posted.Enqueue((d, state)); }

        public static void Fill()
        {
            Context one = new(), two = new();
            Zoo.Start("context", "1", () => { SetSynchronizationContext(one); Price().Wait(); });
            Zoo.Start("context", "v", () => { Zoo.Turn(300); Keep(one); two.Wait(); });
            Zoo.Says("context", Truth.Likely, ["1", "Price"]);
        }

        static async Task Price() => await Task.Delay(50);

        void Wait() { SetSynchronizationContext(this); Answer().Wait(); }

        async Task Answer() => await never.Task;
    }

    /// <summary>Async methods wait already when the thread begins to: it stands in their queue.</summary>
    sealed class Queued
    {
        readonly SemaphoreSlim permits = new(1);
        readonly Order order = new();
        readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            var q = new Queued();
            Zoo.Start("queued", "1", () =>
            {
                lock (q.order)
                {
                    Keep(q.Holder());
                    q.taken.Wait();
                    Keep(q.permits.WaitAsync());
                    Keep(q.permits.WaitAsync());
                    q.permits.Wait();
                }
            });
            Zoo.Says("queued", Truth.Likely, ["1", "2", "Holder"]);
        }

        async Task Holder()
        {
            await permits.WaitAsync();
            taken.Set();
            await Wants(order, "queued");
            permits.Release();
        }
    }

    /// <summary>Two semaphores in opposite orders. No thread takes part.</summary>
    sealed class Crossed
    {
        readonly SemaphoreSlim a = new(1), b = new(1, 1);
        readonly TaskCompletionSource meet = new(TaskCreationOptions.RunContinuationsAsynchronously);
        int here;

        public static void Fill()
        {
            var c = new Crossed();
            Keep(c.First());
            Keep(c.Second());
            Keep(c.Behind());
            Zoo.Says("crossed", Truth.Likely, ["First", "Second"]);
        }

        Task Meet()
        {
            if (Interlocked.Increment(ref here) == 2) meet.SetResult();
            return meet.Task;
        }

        async Task First()
        {
            await a.WaitAsync();
            await Meet();
            await b.WaitAsync();
            b.Release();
            a.Release();
        }

        async ValueTask<int> Second()
        {
            await b.WaitAsync();
            try
            {
                await Meet();
                await a.WaitAsync();
                try { return here; }
                finally { a.Release(); }
            }
            finally
            {
                b.Release();
            }
        }

        async Task Behind()
        {
            await meet.Task;
            await a.WaitAsync();
            a.Release();
        }
    }

    /// <summary>A thread waits under a lock for a task that another one completes behind the same lock.</summary>
    static class Source
    {
        public static void Fill()
        {
            var done = new TaskCompletionSource<int>();
            var order = new Order();
            var taken = new ManualResetEventSlim();
            Zoo.Start("source", "1", () => { lock (order) { taken.Set(); order.Sum = done.Task.Result; } });
            Zoo.Start("source", "2", () => { taken.Wait(); lock (order) order.Sum++; done.TrySetResult(1); });
            Zoo.Says("source", Truth.Likely, ["1", "2"]);
        }
    }

    /// <summary>A method that has a permit wants the lock after an await: it is on a thread.</summary>
    sealed class Resumed
    {
        readonly SemaphoreSlim permits = new(1);
        readonly Order order = new();
        readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            var r = new Resumed();
            Zoo.Start("resumedpermit", "1", () =>
            {
                lock (r.order) { Keep(r.Holder()); r.taken.Wait(); r.Takes(); }
            });
            Zoo.Says("resumedpermit", Truth.Likely, ["1", "2"]);
        }

        void Takes()
        {
            permits.Wait();
            try { order.Sum++; }
            finally { permits.Release(); }
        }

        async Task Holder()
        {
            await permits.WaitAsync();
            try
            {
                await Task.Delay(50);
                Zoo.Name("resumedpermit", "2");
                taken.Set();
                lock (order) order.Sum++;
            }
            finally
            {
                permits.Release();
            }
        }
    }

    /// <summary>A lock for async methods, as many programs have one.</summary>
    sealed class AsyncLock
    {
        readonly SemaphoreSlim one = new(1, 1);

        public async Task<IDisposable> LockAsync() { await one.WaitAsync(); return new Leaver(this); }

        public async ValueTask<Releaser> EnterAsync() { await one.WaitAsync(); return new Releaser(one); }

        sealed class Leaver(AsyncLock owner) : IDisposable
        {
            public void Dispose() => owner.one.Release();
        }
    }

    readonly struct Releaser(SemaphoreSlim one) : IDisposable
    {
        public void Dispose() => one.Release();
    }

    sealed class Using
    {
        readonly AsyncLock gate = new();
        readonly Order order = new();
        readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            var u = new Using();
            Zoo.Start("using", "1", () => { lock (u.order) { Keep(u.Holder()); u.taken.Wait(); u.Waits().Wait(); } });
            Zoo.Says("using", Truth.Likely, ["1", "2", "Holder", "Waits", "LockAsync"]);
        }

        async Task Holder()
        {
            using (await gate.LockAsync())
            {
                taken.Set();
                await Wants(order, "using");
            }
        }

        async Task Waits()
        {
            using var _ = await gate.LockAsync();
        }
    }

    sealed class Record
    {
        readonly AsyncLock gate = new();
        readonly Order order = new();
        readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            var u = new Record();
            Zoo.Start("record", "1", () => { lock (u.order) { Keep(u.Holder()); u.taken.Wait(); u.Waits().Wait(); } });
            Zoo.Says("record", Truth.Likely, ["1", "2", "Holder", "Waits", "EnterAsync"]);
        }

        async Task Holder()
        {
            using Releaser held = await gate.EnterAsync();
            taken.Set();
            await Wants(order, "record");
        }

        async Task Waits()
        {
            using Releaser held = await gate.EnterAsync();
        }
    }

    /// <summary>A semaphore is no lock that its holder can enter again.</summary>
    sealed class Reentrant
    {
        readonly SemaphoreSlim permits = new(1);

        public static void Fill()
        {
            Keep(new Reentrant().Outer());
            Zoo.Says("reentrant", Truth.Likely, ["Outer", "Inner"]);
        }

        async Task Outer()
        {
            await permits.WaitAsync();
            try { await Inner(); }
            finally { permits.Release(); }
        }

        async Task Inner()
        {
            await Task.Yield();
            await permits.WaitAsync();
            permits.Release();
        }
    }

    /// <summary>A thread waits under a lock for an async method that wants a permit.</summary>
    static class Waited
    {
        public static void Fill()
        {
            var permits = new SemaphoreSlim(1);
            var order = new Order();
            var taken = new TaskCompletionSource();
            Zoo.Start("waited", "1", () =>
            {
                lock (order) { Keep(Holder(permits, order, taken)); taken.Task.Wait(); Wanting(permits).GetAwaiter().GetResult(); }
            });
            Zoo.Says("waited", Truth.Likely, ["1", "2", "Holder", "Wanting"]);
        }

        static async Task Holder(SemaphoreSlim permits, Order order, TaskCompletionSource taken)
        {
            await permits.WaitAsync();
            taken.SetResult();
            await Wants(order, "waited").ContinueWith(_ => { });
            permits.Release();
        }

        static async Task Wanting(SemaphoreSlim permits)
        {
            await permits.WaitAsync();
            try { await Task.Yield(); }
            finally { permits.Release(); }
        }
    }

    /// <summary>Threads only: one has a permit and wants the lock, the other one has the lock and wants a permit.</summary>
    static class Plain
    {
        public static void Fill()
        {
            var permits = new SemaphoreSlim(1);
            var order = new Order();
            var meet = Zoo.Meeting(2);
            Zoo.Start("plain", "1", () =>
            {
                permits.Wait();
                try { meet(); lock (order) order.Sum++; }
                finally { permits.Release(); }
            });
            Zoo.Start("plain", "2", () => { lock (order) { meet(); permits.Wait(); permits.Release(); } });
            Zoo.Says("plain", Truth.Likely, ["1", "2"]);
        }
    }

    /// <summary>Methods of the program's own that take the permit, and release it.</summary>
    sealed class Helpers
    {
        readonly SemaphoreSlim permits = new(1);
        readonly Order order = new();
        readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            var h = new Helpers();
            Zoo.Start("helpers", "1", () => { lock (h.order) { Keep(h.Holder()); h.taken.Wait(); h.permits.Wait(); } });
            Zoo.Says("helpers", Truth.Likely, ["1", "2", "Holder"]);
        }

        Task Take() => permits.WaitAsync();
        void Leave() => permits.Release();

        async Task Holder()
        {
            await Take();
            try
            {
                taken.Set();
                await Wants(order, "helpers");
            }
            finally
            {
                Leave();
            }
        }
    }

    /// <summary>The holder awaits several tasks.</summary>
    sealed class Several
    {
        readonly SemaphoreSlim permits = new(1);
        readonly Order order = new();
        readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            var s = new Several();
            Zoo.Start("several", "1", () => { lock (s.order) { Keep(s.Holder()); s.taken.Wait(); s.permits.Wait(); } });
            Zoo.Says("several", Truth.Likely, ["1", "2", "Holder"]);
        }

        async Task Holder()
        {
            await permits.WaitAsync();
            taken.Set();
            await Task.WhenAll(Task.CompletedTask, Wants(order, "several"), Task.Run(() => 1));
            permits.Release();
        }
    }

    /// <summary>A method has a permit and awaits several tasks, of which one wants the same permit.</summary>
    sealed class Joint
    {
        readonly SemaphoreSlim permits = new(1);

        public static void Fill()
        {
            Keep(new Joint().Outer());
            Zoo.Says("joint", Truth.Likely, ["Outer", "Inner"]);
        }

        async Task Outer()
        {
            await permits.WaitAsync();
            await Task.WhenAll(Task.CompletedTask, Inner());
            permits.Release();
        }

        async Task Inner()
        {
            await permits.WaitAsync();
            permits.Release();
        }
    }

    /// <summary>The semaphore is a property of another object, and the method a lambda.</summary>
    sealed class Property
    {
        public SemaphoreSlim Own { get; } = new(1);
        SemaphoreSlim Shared => Own;

        public static void Fill()
        {
            var p = new Property();
            var order = new Order();
            var taken = new ManualResetEventSlim();
            Func<Task> holder = async () =>
            {
                await p.Own.WaitAsync();
                try { taken.Set(); await Wants(order, "property"); }
                finally { p.Shared.Release(); }
            };
            Func<Task> same = async () =>
            {
                await p.Shared.WaitAsync();
                try { taken.Set(); await Wants(order, "property"); }
                finally { p.Shared.Release(); }
            };
            Zoo.Start("property", "1", () => { lock (order) { Keep(same()); taken.Wait(); p.Own.Wait(); } });
            Keep(holder);
            Zoo.Says("property", Truth.Likely, ["1", "2", "Fill{lambda}"]);
        }
    }

    /// <summary>A wait that only a token ends, which nobody cancels.</summary>
    sealed class Token
    {
        readonly SemaphoreSlim a = new(1), b = new(1);
        readonly CancellationTokenSource never = new();
        readonly Func<Task> meet;

        Token()
        {
            var both = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            int here = 0;
            meet = () => { if (Interlocked.Increment(ref here) == 2) both.SetResult(); return both.Task; };
        }

        public static void Fill()
        {
            var t = new Token();
            Keep(t.First());
            Keep(t.Second());
            Zoo.Says("token", Truth.Likely, ["First", "Second", "WaitUntilCountOrTimeoutAsync", "WaitUntilCountOrTimeoutAsync"]);
        }

        async Task First()
        {
            await a.WaitAsync(never.Token);
            await meet();
            await b.WaitAsync(never.Token);
            b.Release();
            a.Release();
        }

        async Task Second()
        {
            await b.WaitAsync(never.Token);
            await meet();
            await a.WaitAsync(never.Token);
            a.Release();
            b.Release();
        }
    }

    /// <summary>All permits are with those who are in the circle.</summary>
    sealed class Pool
    {
        readonly SemaphoreSlim permits = new(2, 2);
        readonly Order order = new();
        readonly CountdownEvent taken = new(2);

        public static void Fill()
        {
            var p = new Pool();
            Zoo.Start("pool", "1", () =>
            {
                lock (p.order) { Keep(p.Holder("pool", "2")); Keep(p.Holder("pool", "3")); p.taken.Wait(); p.permits.Wait(); }
            });
            Zoo.Says("pool", Truth.Likely, ["1", "2", "3", "Holder", "Holder"]);
        }

        async Task Holder(string set, string name)
        {
            await permits.WaitAsync();
            taken.Signal();
            await Task.Run(() => { Zoo.Name(set, name); lock (order) { } });
            permits.Release();
        }
    }

    /// <summary>A static method is given the object that has the semaphore.</summary>
    static class Given
    {
        sealed class Gate { public SemaphoreSlim Permits { get; } = new(1); }

        public static void Fill()
        {
            var gate = new Gate();
            var order = new Order();
            var taken = new ManualResetEventSlim();
            Zoo.Start("given", "1", () =>
            {
                lock (order) { Keep(Holder(order, gate, taken)); taken.Wait(); gate.Permits.Wait(); }
            });
            Zoo.Says("given", Truth.Likely, ["1", "2", "Holder"]);
        }

        static async Task Holder(Order order, Gate gate, ManualResetEventSlim taken)
        {
            await gate.Permits.WaitAsync();
            taken.Set();
            await Wants(order, "given");
            gate.Permits.Release();
        }
    }

    /// <summary>Optimised code has no frame of the method that takes the permit and calls what wants the lock.</summary>
    sealed class Inlined
    {
        readonly SemaphoreSlim permits = new(1);
        readonly Order order = new();
        readonly Action meet = Zoo.Meeting(2);

        public static void Fill()
        {
            // Where the framework is compiled at run time, its methods can be inlined as well: it is not proved then at
            // which call the thread is.
            if (Environment.GetEnvironmentVariable("DOTNET_ReadyToRun") == "0") return;
            var i = new Inlined();
            Zoo.Start("inlined", "1", i.Optimised);
            Zoo.Start("inlined", "2", () => { lock (i.order) { i.meet(); i.permits.Wait(); i.permits.Release(); } });
            Zoo.Says("inlined", Truth.Likely, ["1", "2"]);
        }

        [MethodImpl(MethodImplOptions.AggressiveOptimization)]
        void Optimised() => Run();

        [MethodImpl(MethodImplOptions.AggressiveInlining)]
        void Run()
        {
            permits.Wait();
            try { Sums(); }
            finally { permits.Release(); }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        void Sums()
        {
            meet();
            lock (order) order.Sum++;
        }
    }

    static class Common
    {
        static readonly SemaphoreSlim permits = new(1);
        static readonly Order order = new();
        static readonly ManualResetEventSlim taken = new();

        public static void Fill()
        {
            Zoo.Start("common", "1", () => { lock (order) { Keep(Holder()); taken.Wait(); permits.Wait(); } });
            Zoo.Says("common", Truth.Likely, ["1", "2", "Holder"]);
        }

        static async Task Holder()
        {
            await permits.WaitAsync();
            taken.Set();
            await Wants(order, "common");
            permits.Release();
        }
    }
}
