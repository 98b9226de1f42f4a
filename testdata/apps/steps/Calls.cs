// Ways to call, and the runtime's helpers for compiled code.
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;

namespace Steps;

static partial class Pieces
{
    interface IShape { int Sides(); int Count<T>(T value); }
    abstract class Shape : IShape
    {
        public abstract int Sides();
        public virtual int Count<T>(T value) => Unsafe.SizeOf<T>() > 0 ? Sides() : 0;
    }
    sealed class Line : Shape { [MethodImpl(MethodImplOptions.NoInlining)] public override int Sides() => 2; }
    sealed class Triangle : Shape
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public override int Sides() => 3;
        public override int Count<T>(T value) => 3;
    }
    struct Dot : IShape
    {
        [MethodImpl(MethodImplOptions.NoInlining)] public readonly int Sides() => 2;
        public readonly int Count<T>(T value) => 2;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SidesOf(IShape s) => s.Sides();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CountOf<T>(IShape s, T value) => s.Count(value);

    // Interface, virtual, generic virtual: from call sites that see one type, and
    // from those that see several.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Dispatch()
    {
        IShape[] shapes = [new Line(), new Triangle(), new Dot()];
        long sum = 0;
        for (int i = 0; i < 4; i++)
        {
            foreach (IShape s in shapes) sum += SidesOf(s);
            sum += CountOf(shapes[i % 3], "text") * 0 + CountOf(shapes[1], 1L) + ((Shape)shapes[1]).Sides() * 1 + 1;
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Three() => 3;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Delegates()
    {
        int one = 1;
        Func<int> closure = () => one;
        Func<int> open = Three;
        Func<Line, int> virtualOpen = (Func<Line, int>)Delegate.CreateDelegate(
            typeof(Func<Line, int>), typeof(Shape).GetMethod("Sides"));
        Action many = () => one++;
        many += () => one++;
        long sum = closure() + virtualOpen(new Line()) + open();
        many();
        unsafe
        {
            delegate*<int> pointer = &Three;
            sum += pointer();
        }
        return sum + one + 2;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Shared<T>(object o) where T : class
    {
        var list = new List<T> { o as T };
        return list[0] is T && typeof(T).IsInstanceOfType(o) && ((object)new T[1]) is T[];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Generics()
    {
        long sum = 0;
        for (int i = 0; i < 2; i++)
        {
            if (Shared<string>("text")) sum++;
            if (Shared<Line>(new Line())) sum++;
            if (Shared<IShape>(new Triangle())) sum++;
            if (!Shared<Line>("text")) sum++;
            sum += new Dictionary<(int, string), int> { [(1, "a")] = 1 }[(1, "a")];
        }
        return sum;
    }

    // Static constructors: a new instantiation in each round has not run its own.
    static class Lazy<T>
    {
        public static readonly int Value;
        [ThreadStatic] public static int PerThread;
        static Lazy() { Value = 3; }
    }

    static int rounds;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Touch<T>() => Lazy<T>.Value + Lazy<T>.PerThread;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Statics()
    {
        Type t = typeof(int);
        for (int n = ++rounds % 512 + 1; n > 0; n >>= 1)
            t = (n & 1) == 0 ? t.MakeArrayType() : typeof(List<>).MakeGenericType(t);
        var fresh = (int)typeof(Pieces).GetMethod(nameof(Touch), BindingFlags.Static | BindingFlags.NonPublic)
            .MakeGenericMethod(t).Invoke(null, null);
        return fresh + Touch<string>() + Touch<int>() + Touch<Line>();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Allocations()
    {
        var boxes = new object[16];
        for (int i = 0; i < boxes.Length; i++) boxes[i] = i;
        var lists = new List<object>(boxes);
        Array.Copy(boxes, 0, boxes, 1, boxes.Length - 1);
        GC.KeepAlive(new byte[90_000]);
        GC.KeepAlive(new int[2, 3]);
        GC.KeepAlive(string.Concat("a", lists.Count.ToString(), "b"));
        Finalized.Make();
        long sum = 0;
        foreach (object o in lists) sum += (int)o;
        object[] strings = new string[1];
        try { strings[0] = boxes; }
        catch (ArrayTypeMismatchException) { sum += boxes.Length; }
        return sum;
    }

    sealed class Finalized
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public static void Make() => GC.KeepAlive(new Finalized());
        ~Finalized() { GC.KeepAlive(this); }
    }

    // int Loop(n, sum) { if (n == 0) return sum; tail. return Loop(n - 1, sum + 1); }
    // and one whose callee needs more room for its arguments than the caller has,
    // which takes the runtime's help (System.Runtime.CompilerServices.RuntimeHelpers,
    // DispatchTailCalls).
    static readonly Func<int, int, int> loop = Loop(false), wide = Loop(true);

    static Func<int, int, int> Loop(bool big)
    {
        TypeBuilder type = AssemblyBuilder
            .DefineDynamicAssembly(new AssemblyName("Tail" + big), AssemblyBuilderAccess.Run)
            .DefineDynamicModule("m").DefineType("Tail", TypeAttributes.Public);
        var two = new[] { typeof(int), typeof(int) };
        var many = new Type[14];
        Array.Fill(many, typeof(long));
        many[0] = many[1] = typeof(int);
        MethodBuilder m = type.DefineMethod(
            "Loop", MethodAttributes.Public | MethodAttributes.Static, typeof(int), two);
        MethodBuilder other = !big ? m : type.DefineMethod(
            "Wide", MethodAttributes.Public | MethodAttributes.Static, typeof(int), many);
        Body(m.GetILGenerator(), other, big ? many.Length : 2);
        if (big) Body(other.GetILGenerator(), m, 2);
        return type.CreateType().GetMethod("Loop").CreateDelegate<Func<int, int, int>>();
    }

    static void Body(ILGenerator il, MethodInfo next, int arguments)
    {
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
        for (int i = 2; i < arguments; i++) il.Emit(OpCodes.Ldc_I8, (long)i);
        il.Emit(OpCodes.Tailcall);
        il.EmitCall(OpCodes.Call, next, null);
        il.Emit(OpCodes.Ret);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long TailCalls() => loop(40, 0) + wide(30, 0);

    [DllImport("libc")] static extern int getpid();
    [DllImport("libc"), SuppressGCTransition] static extern int abs(int n);
    [DllImport("libc", SetLastError = true)] static extern nint strlen(string text);
    [DllImport("libc")]
    static extern unsafe void qsort(
        int* values, nuint count, nuint size, delegate* unmanaged[Cdecl]<int*, int*, int> compare);
    [DllImport("libc", EntryPoint = "qsort")]
    static extern unsafe void QsortWith(int* values, nuint count, nuint size, Comparer compare);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    unsafe delegate int Comparer(int* a, int* b);

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static unsafe int Compare(int* a, int* b) => *a - *b;

    static readonly unsafe Comparer comparer = static (a, b) => *b - *a;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe long Native()
    {
        int* numbers = stackalloc int[16];
        for (int i = 0; i < 16; i++) numbers[i] = i * 7 & 15;
        QsortWith(numbers, 16, sizeof(int), comparer);
        qsort(numbers, 16, sizeof(int), &Compare);
        long sum = 0;
        for (int i = 0; i < 16; i++) sum += numbers[i] == i ? i : -100;
        if (getpid() == Environment.ProcessId) sum++;
        var function = (delegate* unmanaged<int>)
            NativeLibrary.GetExport(NativeLibrary.GetMainProgramHandle(), "getpid");
        if (function() == Environment.ProcessId) sum++;
        return sum + abs(-1) + strlen("abc");
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Fib(int n) => n < 2 ? n : Fib(n - 1) + Fib(n - 2);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Hijack() => Fib(14);

    // ---- Other threads

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Contention()
    {
        object gate = new();
        int n = 0;
        var other = new Thread(Add) { Name = "rival" };
        other.Start();
        Add();
        other.Join();
        return n;

        void Add()
        {
            for (int i = 0; i < 10; i++)
            {
                lock (gate) { n++; Thread.Yield(); }
                if (Monitor.TryEnter(gate, 1)) Monitor.Exit(gate);
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Threads()
    {
        int n = 0;
        for (int i = 0; i < 2; i++)
        {
            var t = new Thread(() => { Interlocked.Increment(ref n); Thread.Sleep(1); }) { Name = "short-lived" };
            t.Start();
            t.Join();
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Twice(int n, string text) => 2 * n + text.Length - text.Length;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long ReflectionCalls()
    {
        long sum = 0;
        MethodInfo m = typeof(Pieces).GetMethod(nameof(Twice), BindingFlags.Static | BindingFlags.NonPublic);
        for (int i = 0; i < 3; i++) sum += (int)m.Invoke(null, [i, "x"]);
        var dynamic = new DynamicMethod("Six", typeof(int), null, typeof(Pieces).Module);
        ILGenerator il = dynamic.GetILGenerator();
        il.Emit(OpCodes.Ldc_I4_6);
        il.Emit(OpCodes.Ret);
        return sum + dynamic.CreateDelegate<Func<int>>()();
    }
}
