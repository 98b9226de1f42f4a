// What the busy workers do. Rounds take milliseconds, so that the workers end
// soon; expected results are constants or closed forms.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Runtime.Intrinsics;
using System.Runtime.Loader;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Scenarios;

static class Workers
{
    public static readonly Worker[] All =
    [
        new("osr-loop", OsrLoop, 0),
        new("simd-loop", SimdLoop, SimdLength * (SimdLength - 1L) / 2),
        new("fib", () => Fib(24), 46368),
        new("alloc", Allocate, 20_000L * 19_999 / 2),
        new("gc-collect", Collect, 999 * 1000 / 2),
        new("throw-catch", ThrowAndCatch, 50 * 49 / 2),
        new("faults", HardwareFaults, 100),
        new("thread-churn", ThreadChurn, 100 * (1 + 16 + 256 + 4096 + 65536)),
        new("tier-up", TierUp, 16 * 40 * 39 / 2),
        new("dispatch", Dispatch, 10_000 * 3),
        new("strings", Strings, 2 * (10 + 180 + 100)),
        new("linq-generics", LinqGenerics, 100 * 99 / 2),
        new("dynamic-churn", DynamicChurn, 20 * 42),
        new("alc-churn", CollectibleChurn, 4),
        new("write-barrier", WriteBarrier, 4096L * 4095 / 2),
        new("casts", Casts, 3 * 3000),
        new("ping-pong", PingPong, 200),
        new("async-storm", AsyncStorm, 64 * 10),
        new("tail-calls", TailCalls, 20_000),
        new("sort", Sort, 4096L * 4095 / 2),
        new("pinvoke-storm", PInvokeStorm, 2000),
        new("qsort-storm", QsortStorm, 64 * 63 / 2),
        new("first-calls", FirstCalls, 64, Threads: 2, OnlyByName: true),
    ];

    // One call for the whole run: only on-stack replacement can optimise it. The
    // result is right if the sum of the first n numbers is n(n-1)/2.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long OsrLoop()
    {
        ulong sum = 0, n = 0;
        while (!App.Ending)
        {
            for (int i = 0; i < 100_000; i++) sum += n++;
        }
        UInt128 wanted = (UInt128)n * (n - 1) / 2;
        return sum == (ulong)wanted ? 0 : 1;
    }

    const int SimdLength = 20_000;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long SimdLoop()
    {
        var numbers = new long[SimdLength];
        for (int i = 0; i < numbers.Length; i++) numbers[i] = i;
        Vector256<long> sum = default;
        for (int i = 0; i < numbers.Length; i += Vector256<long>.Count) sum += Vector256.LoadUnsafe(ref numbers[i]);
        return Vector256.Sum(sum);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Fib(int n) => n < 2 ? n : Fib(n - 1) + Fib(n - 2);

    sealed class Node(int value, Node next)
    {
        public readonly int Value = value;
        public Node Next = next;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Allocate()
    {
        Node list = null;
        for (int i = 0; i < 20_000; i++)
        {
            list = new Node(i, list);
            if (i % 100 == 0) GC.KeepAlive(new byte[5000]);
        }
        long sum = 0;
        for (; list != null; list = list.Next) sum += list.Value;
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Collect()
    {
        Node list = null;
        for (int i = 0; i < 1000; i++) list = new Node(i, list);
        GC.Collect(Environment.TickCount & 1);
        if ((Environment.TickCount & 31) == 0) GC.Collect(2, GCCollectionMode.Forced, blocking: true, compacting: true);
        long sum = 0;
        for (; list != null; list = list.Next) sum += list.Value;
        Thread.Sleep(2);
        return sum;
    }

    sealed class Carried(int value) : Exception { public readonly int Value = value; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ThrowCarried(int value, int depth)
    {
        if (depth == 0) throw new Carried(value);
        try { return ThrowCarried(value, depth - 1); }
        finally { GC.KeepAlive(value); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long ThrowAndCatch()
    {
        long sum = 0;
        for (int i = 0; i < 50; i++)
        {
            try { ThrowCarried(i, i % 8); }
            catch (Carried e) when (e.Value == i) { sum += e.Value; }
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Divide(int a, int b) => a / b;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ValueOf(Node n) => n.Value;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long HardwareFaults()
    {
        int caught = 0;
        for (int i = 0; i < 50; i++)
        {
            try { ValueOf(null); } catch (NullReferenceException) { caught++; }
            try { Divide(i, 0); } catch (DivideByZeroException) { caught++; }
        }
        return caught;
    }

    // Threads that live from some microseconds to some tens of milliseconds.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long ThreadChurn()
    {
        int sum = 0;
        var threads = new Thread[5];
        for (int i = 0; i < threads.Length; i++)
        {
            int times = 100 << (4 * i);
            threads[i] = new Thread(() => { for (int n = 0; n < times; n++) Interlocked.Increment(ref sum); })
            {
                Name = "mayfly",
            };
            threads[i].Start();
        }
        foreach (Thread t in threads) t.Join();
        Interlocked.Add(ref Counts.Threads, threads.Length);
        Thread.Sleep(2);
        return sum;
    }

    // Instantiations over ever new value types: methods that start at tier 0 and are
    // called often enough to be compiled again.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long TierUp()
    {
        long sum = 0;
        int first = Interlocked.Increment(ref tierUpRounds);
        for (int i = 0; i < 16; i++)
        {
            Func<int, long> f = (first + i) % 97 < 40 ? Fresh(first + i) : Counted<int>;
            for (int n = 0; n < 40; n++) sum += f(n);
        }
        return sum;
    }

    static int tierUpRounds;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Counted<T>(int n) => n + Unsafe.SizeOf<T>() - Unsafe.SizeOf<T>();

    static Func<int, long> Fresh(int seed)
    {
        MethodInfo m = typeof(Workers).GetMethod(nameof(Counted), BindingFlags.Static | BindingFlags.NonPublic);
        return m.MakeGenericMethod(ValueType(seed % 4096 + 1)).CreateDelegate<Func<int, long>>();
    }

    static Type ValueType(int number)
    {
        Type t = typeof(int);
        for (int bits = number; bits > 0; bits >>= 1)
            t = (bits & 1) == 0
                ? typeof(ValueTuple<>).MakeGenericType(t)
                : typeof(KeyValuePair<,>).MakeGenericType(t, typeof(byte));
        return t;
    }

    interface IStep { int Step(int n); }
    abstract class StepBase { public abstract int Step(int n); }
    sealed class A : StepBase, IStep
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public override int Step(int n) => n % 2;
    }
    sealed class B : StepBase, IStep
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public override int Step(int n) => 1 - n % 2;
    }
    struct C : IStep { [MethodImpl(MethodImplOptions.NoInlining)] public readonly int Step(int n) => 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Dispatch()
    {
        IStep[] steps = [new A(), new B(), new C()];
        StepBase[] bases = [new A(), new B()];
        Func<int, int>[] delegates = [steps[0].Step, steps[1].Step];
        long sum = 0;
        for (int i = 0; i < 10_000; i++)
        {
            sum += steps[2].Step(i);
            sum += steps[0].Step(i) + bases[1].Step(i);
            sum += delegates[0](i) + delegates[1](i);
        }
        return sum;
    }

    sealed class First<T> : IStep { [MethodImpl(MethodImplOptions.NoInlining)] public int Step(int n) => n; }

    static int firsts;

    // Objects of ever new types: how each is called has to be found out, and written down
    // under a lock, from which the thread returns to managed code.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long FirstCalls()
    {
        long sum = 0;
        for (int i = 0; i < 64; i++)
        {
            Type t = ValueType(Interlocked.Increment(ref firsts));
            sum += ((IStep)Activator.CreateInstance(typeof(First<>).MakeGenericType(t))).Step(1);
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Strings()
    {
        var text = new StringBuilder();
        for (int i = 0; i < 100; i++) text.Append(i).Append(',');
        string[] parts = string.Concat(text.ToString(), text).Split(',', StringSplitOptions.RemoveEmptyEntries);
        return parts.Sum(p => p.Length) + $"{string.Join("", parts.Select(p => p[..1]))}".Length;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long LinqGenerics()
    {
        var byKey = new Dictionary<(int, string), List<long>>();
        foreach (int i in Enumerable.Range(0, 100))
        {
            var key = (i % 10, (i % 10).ToString());
            if (!byKey.TryGetValue(key, out List<long> list)) byKey[key] = list = new List<long>();
            list.Add(i);
        }
        return byKey.OrderByDescending(p => p.Key.Item2, StringComparer.Ordinal).SelectMany(p => p.Value).Sum();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long DynamicChurn()
    {
        long sum = 0;
        for (int i = 0; i < 20; i++)
        {
            var m = new DynamicMethod("Fleeting", typeof(int), [typeof(int)], typeof(Workers).Module);
            ILGenerator il = m.GetILGenerator();
            il.Emit(OpCodes.Ldarg_0);
            il.Emit(OpCodes.Ldc_I4, 42 - i);
            il.Emit(OpCodes.Add);
            il.Emit(OpCodes.Ret);
            sum += m.CreateDelegate<Func<int, int>>()(i);
        }
        Interlocked.Add(ref Counts.DynamicMethods, 20);
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long CollectibleChurn()
    {
        int n = Dynamic.LoadPlugin(out AssemblyLoadContext context)(static () => 0);
        Counts.WillUnload(context);
        context.Unload();
        Thread.Sleep(20);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long WriteBarrier()
    {
        var boxes = new object[4096];
        for (int i = 0; i < boxes.Length; i++) boxes[i] = i;
        for (int turn = 0; turn < 8; turn++)
            for (int i = 0, j = boxes.Length - 1; i < j; i++, j--) (boxes[i], boxes[j]) = (boxes[j], boxes[i]);
        long sum = 0;
        foreach (object o in boxes) sum += (int)o;
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Casts()
    {
        object[] things = [new List<string>(), "text", new int[1], new A(), 1];
        long sum = 0;
        for (int i = 0; i < 3000; i++)
        {
            object o = things[i % things.Length];
            if (o is IEnumerable<string> or string or int[] or IStep or int) sum++;
            if (o is not IDictionary<string, string>) sum++;
            if (((object[])things).Length == 5 && Identity<IComparable>(things[1]) != null) sum++;
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static T Identity<T>(object o) where T : class => (T)o;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long PingPong()
    {
        object gate = new();
        int turns = 0;
        var other = new Thread(() => Play(1)) { Name = "pong" };
        other.Start();
        Play(0);
        other.Join();
        return turns;

        void Play(int me)
        {
            for (int i = 0; i < 100; i++)
                lock (gate)
                {
                    while (turns % 2 != me) Monitor.Wait(gate);
                    turns++;
                    Monitor.Pulse(gate);
                }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long AsyncStorm()
    {
        return Task.WhenAll(Enumerable.Range(0, 64).Select(_ => Chain(10))).Result.Sum();

        static async Task<long> Chain(int n)
        {
            if (n == 0) return 0;
            await Task.Yield();
            return await Chain(n - 1) + 1;
        }
    }

    // int Loop(int n, int sum) { if (n == 0) return sum; tail. return Loop(n - 1, sum + 1); }
    static readonly Func<int, int, int> tailLoop = MakeTailLoop();

    static Func<int, int, int> MakeTailLoop()
    {
        TypeBuilder type = Dynamic.Module("TailLoops", AssemblyBuilderAccess.Run)
            .DefineType("Emitted.TailLoop", TypeAttributes.Public);
        MethodBuilder m = type.DefineMethod(
            "Loop", MethodAttributes.Public | MethodAttributes.Static, typeof(int), [typeof(int), typeof(int)]);
        ILGenerator il = m.GetILGenerator();
        Label more = il.DefineLabel();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Brtrue, more);
        il.Emit(OpCodes.Ldarg_1);
        il.Emit(OpCodes.Ret);
        il.MarkLabel(more);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Sub);
        il.Emit(OpCodes.Ldarg_1);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Tailcall);
        il.EmitCall(OpCodes.Call, m, null);
        il.Emit(OpCodes.Ret);
        return type.CreateType().GetMethod("Loop").CreateDelegate<Func<int, int, int>>();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long TailCalls() => tailLoop(20_000, 0);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Sort()
    {
        var numbers = new int[4096];
        for (int i = 0; i < numbers.Length; i++) numbers[i] = i * 2609 & 4095;
        numbers.AsSpan().Sort();
        long sum = 0;
        for (int i = 0; i < numbers.Length; i++) sum += numbers[i] == i ? i : -1;
        return sum;
    }

    [DllImport("libc")] static extern int getpid();
    [DllImport("libc"), SuppressGCTransition] static extern int abs(int n);
    [DllImport("libc")]
    static extern unsafe void qsort(
        int* values, nuint count, nuint size, delegate* unmanaged[Cdecl]<int*, int*, int> compare);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long PInvokeStorm()
    {
        long right = 0;
        for (int i = 0; i < 1000; i++)
        {
            if (getpid() == Environment.ProcessId) right++;
            if (abs(-i) == i) right++;
        }
        return right;
    }

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static unsafe int Compare(int* a, int* b) => *a - *b;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe long QsortStorm()
    {
        int* numbers = stackalloc int[64];
        for (int i = 0; i < 64; i++) numbers[i] = i * 37 & 63;
        qsort(numbers, 64, sizeof(int), &Compare);
        long sum = 0;
        for (int i = 0; i < 64; i++) sum += numbers[i] == i ? i : -1;
        return sum;
    }
}
