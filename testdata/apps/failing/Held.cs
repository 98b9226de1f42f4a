using System;
using System.Collections.Generic;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.ExceptionServices;
using System.Runtime.Loader;
using System.Threading;
using System.Threading.Tasks;

namespace Failing;

/// <summary>Ways in which a thread stays in the handler of an exception.</summary>
static class Held
{
    public static readonly Dictionary<string, Action> Ways = new()
    {
        ["catch"] = () => Catch("catch", () => Shop.Process("plain")),
        ["filter"] = Filter,
        ["finally"] = Finally,
        ["again"] = () => Catch("again", Again),
        ["throw-ex"] = () => Catch("throw-ex", ThrowEx),
        ["inner"] = () => Catch("inner", () => Shop.Wrapped(3)),
        ["during"] = During,
        ["dispatch"] = () => Catch("dispatch", Dispatch),
        ["async"] = () => Catch("async", () => Async("async").GetAwaiter().GetResult()),
        ["aggregate"] = () => Catch("aggregate", () => Async("aggregate").Wait()),
        ["aggregates"] = () => Catch("aggregates", Aggregates),
        ["generic"] = () => Catch("generic", () => Shop.Generic("x", new List<string>())),
        ["references"] = () => Catch("references", () => Box<string>.Start("x")),
        ["values"] = () => Catch("values", () => Box<int>.Start(3)),
        ["iterator"] = () => Catch("iterator", () =>
        {
            foreach (int n in Numbers()) GC.KeepAlive(n);
        }),
        ["lambda"] = Lambda,
        ["dynamic"] = () => Catch("dynamic", MakeDynamic()),
        ["collectible"] = () => Catch("collectible", Collectible),
        ["null"] = () => Catch("null", () => Faults.First(null)),
        ["null-field"] = () => Catch("null-field", () => Faults.Field(3, null)),
        ["divide"] = () => Catch("divide", () => Faults.Divide(3, 0)),
        ["index"] = () => Catch("index", () => Faults.Index(new int[2], 2)),
        ["constructor"] = () => Catch("constructor", () => Faults.Broken.Touch()),
        ["argument"] = () => Catch("argument", () => Faults.Argument(null)),
        ["reflection"] = () => Catch("reflection", () => typeof(Shop).GetMethod("Process").Invoke(null, ["reflection"])),
        ["remote"] = () => Catch("remote", Remote),
        ["deep"] = () => Catch("deep", () => Shop.Validate(3000, "deep")),
        ["long"] = () => Catch("long", () => Shop.Process(new string('x', 100_000))),
        ["lines"] = () => Catch("lines", () => Shop.Process("first line\nsecond line")),
        ["no-message"] = () => Catch("no-message", () => throw new InvalidTimeZoneException()),
        ["cycle"] = Cycle,
        ["unobserved"] = Unobserved,
    };

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Catch(string way, Action fail)
    {
        try
        {
            fail();
        }
        catch (Exception e)
        {
            Program.Hold(way, e);
        }
    }

    static void Filter()
    {
        try
        {
            Shop.Process("filter");
        }
        catch (OrderRefused e) when (Program.Hold("filter", e))
        {
        }
    }

    static void Finally()
    {
        Exception thrown = null;
        try
        {
            try
            {
                Shop.Process("finally");
            }
            finally
            {
                Program.Hold("finally", thrown);
            }
        }
        catch (OrderRefused e) when (Remember(out thrown, e))
        {
        }
    }

    static bool Remember(out Exception to, Exception e)
    {
        to = e;
        return true;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Again()
    {
        try
        {
            Shop.Process("thrown again");
        }
        catch (OrderRefused)
        {
            throw;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowEx()
    {
        try
        {
            Shop.Process("thrown as new");
        }
        catch (OrderRefused e)
        {
            throw e;
        }
    }

    static void During()
    {
        try
        {
            Shop.Process("the first");
        }
        catch (OrderRefused)
        {
            Catch("during", () => Shop.Process("the second"));
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Dispatch()
    {
        ExceptionDispatchInfo captured = ExceptionDispatchInfo.Capture(Shop.Caught("dispatched"));
        var thread = new Thread(() => { try { captured.Throw(); } catch (OrderRefused) { } });
        thread.Start();
        thread.Join();
        captured.Throw();
    }

    static async Task<int> Async(string what)
    {
        await Task.Yield();
        try
        {
            return await Deeper(what);
        }
        finally
        {
            await Task.Yield();
        }
    }

    static async Task<int> Deeper(string what)
    {
        await Task.Delay(1);
        return Shop.Process(what);
    }

    static void Aggregates()
    {
        Task a = Task.WhenAll(Async("one"), Async("two"));
        Task b = Task.Run(() => Task.WaitAll(a, Async("three")));
        Task.WaitAll(b, Async("four"));
    }

    static IEnumerable<int> Numbers()
    {
        yield return 1;
        Shop.Process("iterator");
        yield return 2;
    }

    static void Lambda()
    {
        string what = "lambda";
        int Local(int n) => n + Shop.Process(what);
        Catch("lambda", () => Local(2));
    }

    static Action MakeDynamic()
    {
        var method = new DynamicMethod("emitted", typeof(int), [], typeof(Held).Module);
        ILGenerator il = method.GetILGenerator();
        il.Emit(OpCodes.Ldstr, "from a dynamic method");
        il.Emit(OpCodes.Call, typeof(Shop).GetMethod("Process"));
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Add); // so that it is no tail call
        il.Emit(OpCodes.Ret);
        var call = method.CreateDelegate<Func<int>>();
        return () => call();
    }

    /// <summary>Of this assembly, once more, in a context that can be unloaded.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Collectible()
    {
        var context = new AssemblyLoadContext("collectible", isCollectible: true);
        Type type = context.LoadFromAssemblyPath(typeof(Held).Assembly.Location).GetType("Failing.Shop");
        var call = type.GetMethod("Process").CreateDelegate<Func<string, int>>();
        context.Unload();
        call("collectible");
    }

    static void Remote()
    {
        var e = new OrderRefused("from elsewhere");
        ExceptionDispatchInfo.SetRemoteStackTrace(e, "   at Another.Machine.Answers()");
        throw e;
    }

    /// <summary>Two exceptions that are each other's reason. ToString would not end.</summary>
    static void Cycle()
    {
        FieldInfo inner = typeof(Exception).GetField("_innerException", BindingFlags.NonPublic | BindingFlags.Instance);
        Exception a = Shop.Caught("one"), b = Shop.Caught("the other");
        try
        {
            throw a;
        }
        catch (Exception e)
        {
            string before = e.ToString();
            inner.SetValue(a, b);
            inner.SetValue(b, a);
            Program.Hold("cycle", new Text(before));
        }
    }

    /// <summary>An exception that is only printed.</summary>
    class Text(string text) : Exception
    {
        public override string ToString() => text;
    }

    /// <summary>Held by the finalizer thread.</summary>
    static void Unobserved()
    {
        TaskScheduler.UnobservedTaskException += (_, e) => Program.Hold("unobserved", e.Exception);
        Forget();
        for (;;)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
            Thread.Sleep(10);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Forget()
    {
        Task task = Task.WhenAll(Async("unobserved"), Async("neither"));
        while (!task.IsCompleted) Thread.Sleep(1);
    }
}

/// <summary>Its methods are called through stubs.</summary>
interface IRun
{
    void Run();
}

struct Cart<T> : IRun
{
    public T Item;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Run() => Shop.Process("generics");
}

class Box<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    U Map<U>(U value, IRun run)
    {
        run.Run();
        return value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Start(T item) => new Box<T[]>().Map(new List<T>(), new Cart<T> { Item = item });
}

/// <summary>Faults of the hardware, and exceptions that the runtime throws.</summary>
static class Faults
{
    class Node
    {
        public Node Next = null;
        public int Value = 0;
    }

    // The first instruction of the method is the one that fails.
    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static int First(object node) =>
        Unsafe.As<Node>(node).Value;

    // The first instruction behind a call is the one that fails.
    [MethodImpl(MethodImplOptions.NoInlining | MethodImplOptions.AggressiveOptimization)]
    public static int Field(int n, object node)
    {
        Sink(n);
        n = Unsafe.As<Node>(node).Value;
        Sink(n);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sink(int n) => sink = n;

    static int sink;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Divide(int a, int b)
    {
        Volatile.Write(ref sink, a);
        return
            a / b;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Index(int[] items, int i)
    {
        int n = items.Length;
        return n + items[i];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Argument(string text)
    {
        ArgumentNullException.ThrowIfNull(text);
    }

    public static class Broken
    {
        static readonly int value = Shop.Process("in a class constructor");

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static int Touch() => value;
    }
}
