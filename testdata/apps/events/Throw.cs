// Exceptions: who throws, who throws again, who catches. Each method counts right
// before it throws and at the beginning of its handler.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Events;

static class Throw
{
    // How many the runtime has announced, those that are thrown again among them.
    static long firstChance;

    // Those that must have been announced.
    static readonly List<Tally> counted = new();

    public static Lane[] Lanes()
    {
        AppDomain.CurrentDomain.FirstChanceException += (_, _) => Interlocked.Increment(ref firstChance);
        Truth.Check(() =>
        {
            long sum = counted.Sum(t => t.Count);
            return sum == firstChance ? null : $"{sum} exceptions counted, {firstChance} announced by the runtime";
        });
        Site[] sites =
        [
            new(25, ByCaller), new(12, FromBelow), new(3, FromFarBelow), new(12, ByFilter), new(8, ByOuter),
            new(10, OfNothing), new(6, OfZero), new(4, AfterFinally), new(4, AfterFilter), new(6, OfAsync),
            new(4, OfCallback), new(6, OfLibrary),
        ];
        double perSecond = App.Int("throws", 1000) / 2.0;
        return [new Lane("throw-1", perSecond, sites), new Lane("throw-2", perSecond, sites)];
    }

    static Tally Announced(string kind, string method, Type type)
    {
        Tally t = Truth.Of(kind, method, type);
        counted.Add(t);
        return t;
    }

    static Tally Thrown<T>(string method) => Announced("exception", "Events.Throw." + method, typeof(T));
    static Tally Rethrown<T>(string method) => Announced("rethrow", "Events.Throw." + method, typeof(T));
    static Tally Caught<T>(string method) => Truth.Of("catch", "Events.Throw." + method, typeof(T));

    const string Reason = "thrown to be caught";

    static readonly Tally atOnce = Thrown<InvalidOperationException>(nameof(AtOnce));
    static readonly Tally byCaller = Caught<InvalidOperationException>(nameof(ByCaller));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ByCaller()
    {
        try { AtOnce(); }
        catch (InvalidOperationException) { byCaller.Add(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AtOnce()
    {
        atOnce.Add();
        throw new InvalidOperationException(Reason);
    }

    static readonly Tally bottom = Thrown<TimeoutException>(nameof(Bottom));
    static readonly Tally fromBelow = Caught<TimeoutException>(nameof(FromBelow));
    static readonly Tally fromFarBelow = Caught<TimeoutException>(nameof(FromFarBelow));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void FromBelow()
    {
        try { Descend(20); }
        catch (TimeoutException) { fromBelow.Add(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void FromFarBelow()
    {
        try { Descend(200); }
        catch (TimeoutException) { fromFarBelow.Add(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Descend(int depth) => depth == 0 ? Bottom() : Descend(depth - 1) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Bottom()
    {
        bottom.Add();
        throw new TimeoutException(Reason);
    }

    sealed class Marked(int mark) : Exception(Reason) { public readonly int Mark = mark; }

    static readonly Tally mark = Thrown<Marked>(nameof(Mark));
    static readonly Tally byFilter = Caught<Marked>(nameof(ByFilter));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ByFilter()
    {
        try { PassBy(); }
        catch (Marked e) when (e.Mark == 1) { byFilter.Add(); }
    }

    // Its filter does not accept the exception.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void PassBy()
    {
        try { Mark(1); }
        catch (Marked e) when (e.Mark != 1) { throw new InvalidOperationException("caught in spite of the filter"); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Mark(int n)
    {
        mark.Add();
        throw new Marked(n);
    }

    static readonly Tally original = Thrown<IOException>(nameof(Original));
    static readonly Tally byInner = Caught<IOException>(nameof(Again));
    static readonly Tally again = Rethrown<IOException>(nameof(Again));
    static readonly Tally byOuter = Caught<IOException>(nameof(ByOuter));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ByOuter()
    {
        try { Again(); }
        catch (IOException) { byOuter.Add(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Again()
    {
        try { Original(); }
        catch (IOException)
        {
            byInner.Add();
            again.Add();
            throw;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Original()
    {
        original.Add();
        throw new IOException(Reason);
    }

    sealed class Cell { public int Value = 1; }

    static readonly Tally dereference = Thrown<NullReferenceException>(nameof(Dereference));
    static readonly Tally ofNothing = Caught<NullReferenceException>(nameof(OfNothing));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OfNothing()
    {
        try { Dereference(null); }
        catch (NullReferenceException) { ofNothing.Add(); }
    }

    // By a CPU fault, as is the next.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Dereference(Cell none)
    {
        dereference.Add();
        return none.Value;
    }

    static readonly Tally divide = Thrown<DivideByZeroException>(nameof(Divide));
    static readonly Tally ofZero = Caught<DivideByZeroException>(nameof(OfZero));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OfZero()
    {
        try { Divide(1, 0); }
        catch (DivideByZeroException) { ofZero.Add(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Divide(int a, int zero)
    {
        divide.Add();
        return a / zero;
    }

    static readonly Tally lost = Thrown<IndexOutOfRangeException>(nameof(Lose));
    static readonly Tally replace = Thrown<NotSupportedException>(nameof(Replace));
    static readonly Tally afterFinally = Caught<NotSupportedException>(nameof(AfterFinally));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AfterFinally()
    {
        try { ThrowingFinally(); }
        catch (NotSupportedException) { afterFinally.Add(); }
        catch (IndexOutOfRangeException)
        {
            throw new InvalidOperationException("the finally block's exception is gone");
        }
    }

    // The exception of the finally block replaces the one that ran it, which is never
    // caught. But it needs a handler, or there would be no second pass.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowingFinally()
    {
        try { Lose(); }
        finally { Replace(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Lose()
    {
        lost.Add();
        throw new IndexOutOfRangeException(Reason);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Replace()
    {
        replace.Add();
        throw new NotSupportedException(Reason);
    }

    static readonly Tally plain = Thrown<ArithmeticException>(nameof(Plain));
    static readonly Tally inFilter = Thrown<NotImplementedException>(nameof(InFilter));
    static readonly Tally afterFilter = Caught<ArithmeticException>(nameof(AfterFilter));

    // The runtime swallows what a filter throws, and takes it for false.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void AfterFilter()
    {
        try { Plain(); }
        catch (ArithmeticException) when (InFilter())
        {
            throw new InvalidOperationException("a filter that throws is not a yes");
        }
        catch (ArithmeticException) { afterFilter.Add(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Plain()
    {
        plain.Add();
        throw new ArithmeticException(Reason);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool InFilter()
    {
        inFilter.Add();
        throw new NotImplementedException(Reason);
    }

    // The state machine of Failing catches the exception and hands it to the method that
    // awaits it. There it is thrown again, and caught.
    static readonly string awaiting = Truth.MoveNext(typeof(Throw), nameof(Awaiting));
    static readonly string failing = Truth.MoveNext(typeof(Throw), nameof(Failing));
    static readonly Tally fromAsync = Thrown<UnauthorizedAccessException>(nameof(FromAsync));
    static readonly Tally handed = Truth.Of("catch", failing, typeof(UnauthorizedAccessException));
    static readonly Tally anew = Announced("rethrow", awaiting, typeof(UnauthorizedAccessException));
    static readonly Tally awaited = Truth.Of("catch", awaiting, typeof(UnauthorizedAccessException));

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OfAsync()
    {
        Task all = Awaiting();
        Pause.End();
        if (!all.IsCompletedSuccessfully) throw new InvalidOperationException("the task has not ended well");
    }

    static async Task Awaiting()
    {
        try { await Failing(); }
        catch (UnauthorizedAccessException) { awaited.Add(); }
    }

    static async Task Failing()
    {
        await new Pause();
        FromAsync();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void FromAsync()
    {
        fromAsync.Add();
        handed.Add();
        anew.Add();
        throw new UnauthorizedAccessException(Reason);
    }

    static readonly Tally inCallback = Thrown<OperationCanceledException>(nameof(InCallback));
    static readonly Tally compare = Caught<OperationCanceledException>(nameof(Compare));

    [DllImport("libc")]
    static extern unsafe void qsort(
        int* values, nuint count, nuint size, delegate* unmanaged[Cdecl]<int*, int*, int> compare);

    /// <summary>Below native frames.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe void OfCallback()
    {
        int* two = stackalloc int[2];
        qsort(two, 2, sizeof(int), &Compare);
    }

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static unsafe int Compare(int* a, int* b)
    {
        try { InCallback(); }
        catch (OperationCanceledException) { compare.Add(); }
        return *a - *b;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void InCallback()
    {
        inCallback.Add();
        throw new OperationCanceledException(Reason);
    }

    static readonly Tally parse = Thrown<FormatException>(nameof(Parse));
    static readonly Tally ofLibrary = Caught<FormatException>(nameof(OfLibrary));

    /// <summary>Thrown by the framework.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OfLibrary()
    {
        try { Parse("no number"); }
        catch (FormatException) { ofLibrary.Add(); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Parse(string text)
    {
        parse.Add();
        return int.Parse(text);
    }
}
