// Storm workers that throw: nested, again, from filters, finally blocks and
// funclets, by hardware, and around native code.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;
using System.Threading.Tasks;

namespace Scenarios;

static class StormThrow
{
    sealed class Marked(int mark, Exception inner = null) : Exception("marked", inner)
    {
        public readonly int Mark = mark;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Throw(int mark) => throw new Marked(mark);

    /// <summary>
    /// A catch that throws inside of a catch, thrown again on the way, through finally blocks that collect garbage.
    /// </summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Nested()
    {
        long sum = 0;
        for (int i = 0; i < 20; i++)
        {
            try { Outer(i); }
            catch (Marked e) when (e.Mark == i + 100) { sum += ((Marked)e.InnerException).Mark; }
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Outer(int i)
    {
        try
        {
            try { Again(i); }
            catch (Marked e)
            {
                try { Throw(i + 100); }
                catch (Marked second) { throw new Marked(second.Mark, e); }
            }
        }
        finally { if (i == 7) GC.Collect(0); else GC.KeepAlive(new byte[100]); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Again(int i)
    {
        try { Deep(i, i % 10); }
        catch (Marked e) when (i % 2 == 0) { ExceptionDispatchInfo.Throw(e); }
        catch (Marked) { throw; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Deep(int i, int depth)
    {
        try { return depth == 0 ? Throw(i) : Deep(i, depth - 1) + 1; }
        finally { Inner(i); }
    }

    // What a finally funclet calls throws and catches an exception of its own.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Inner(int i)
    {
        try { Throw(-i); }
        catch (Marked e) when (Filter(e, -i)) { }
    }

    // An exception in a filter is swallowed there, and means false.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Filter(Marked e, int mark)
    {
        try { Throw(0); }
        catch (Marked) { }
        return e.Mark == mark;
    }

    /// <summary>Filters that throw: nothing catches there.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Filters()
    {
        long caught = 0;
        for (int i = 0; i < 20; i++)
        {
            try
            {
                try { Throw(i); }
                catch (Marked) when (Throw(i) == 0) { caught = -1000; }
            }
            catch (Marked e) when (e.Mark == i) { caught++; }
        }
        return caught;
    }

    sealed class Box { public int Value = 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Faulty(int kind, int zero, Box none, object text, int[] few) => kind switch
    {
        0 => none.Value,
        1 => kind / zero,
        2 => ((Box)text).Value,
        3 => few[kind],
        4 => checked(int.MaxValue + kind),
        5 => ((object[])new string[1])[zero] is null ? Store(new string[1]) : 0,
        _ => (int)(object)text,
    };

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Store(object[] strings)
    {
        strings[0] = new Box();
        return 0;
    }

    /// <summary>What the CPU or the runtime throws, in ordinary code, catch and finally funclets.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Faults()
    {
        long caught = 0;
        for (int kind = 0; kind < 7; kind++)
        {
            try { Faulty(kind, 0, null, "text", []); }
            catch (Exception e) when (e is NullReferenceException or DivideByZeroException or InvalidCastException or
                IndexOutOfRangeException or OverflowException or ArrayTypeMismatchException)
            {
                caught++;
                try { Faulty(kind, 0, null, "text", []); }
                catch (SystemException) { caught++; }
            }
            finally
            {
                try { Faulty(kind, 0, null, "text", []); }
                catch (SystemException) { caught++; }
            }
        }
        return caught;
    }

    [DllImport("libc")]
    static extern unsafe void qsort(
        int* values, nuint count, nuint size, delegate* unmanaged[Cdecl]<int*, int*, int> compare);
    [DllImport("libc", EntryPoint = "no_such_function_in_libc")] static extern void Missing();

    // No exception may leave it: native code has nothing to unwind with.
    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static unsafe int Compare(int* a, int* b)
    {
        try { return Deep(*a - *b, 2); }
        catch (Marked e) { return e.Mark; }
        finally { GC.KeepAlive(new byte[50]); }
    }

    /// <summary>Exceptions below native code that is below a try block.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static unsafe long AroundNative()
    {
        int* numbers = stackalloc int[8];
        for (int i = 0; i < 8; i++) numbers[i] = i * 5 & 7;
        long right = 0;
        try
        {
            qsort(numbers, 8, sizeof(int), &Compare);
            for (int i = 0; i < 8; i++) right += numbers[i] == i ? 1 : 0;
            Missing();
        }
        catch (EntryPointNotFoundException) { right++; }
        return right;
    }

    /// <summary>Exceptions that travel through awaits.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Async()
    {
        long sum = 0;
        for (int i = 0; i < 10; i++)
        {
            try { Awaited(i, 4).GetAwaiter().GetResult(); }
            catch (Marked e) { sum += e.Mark; }
        }
        return sum;

        static async Task<int> Awaited(int mark, int depth)
        {
            await Task.Yield();
            try { return depth == 0 ? Throw(mark) : await Awaited(mark, depth - 1); }
            finally { await Task.Yield(); }
        }
    }
}
