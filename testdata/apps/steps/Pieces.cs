// What the stepped thread does.
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Steps;

static partial class Pieces
{
    public static readonly Piece[] All =
    [
        new("exceptions", Exceptions, 9 * 10 / 2 + 10 * 3 + 10),
        new("deep-unwind", DeepUnwind, 2 * (12 + 1)),
        new("faults", Faults, 3),
        new("async-throw", AsyncThrow, 7),
        new("dispatch", Dispatch, 8 * 7),
        new("delegates", Delegates, 1 + 2 + 3 + 3 + 5),
        new("generics", Generics, 2 * 5),
        new("statics", Statics, 3 * 4),
        new("allocations", Allocations, 16 * 15 / 2 + 16),
        new("tail-calls", TailCalls, 40 + 30),
        new("native", Native, 16 * 15 / 2 + 6),
        new("hijack", Hijack, 377),
        new("contention", Contention, 20),
        new("threads", Threads, 2),
        new("reflection", ReflectionCalls, 12),
        new("recursion", RecursiveHandlers, 6),
    ];

    // ---- Exceptions

    sealed class Carried(int value) : Exception { public readonly int Value = value; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Thrower(int value, int depth)
    {
        if (depth == 0) throw new Carried(value);
        try { return Thrower(value, depth - 1); }
        finally { trace += 1; }
    }

    static int trace;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Accepts(Carried e, int value) => e.Value == value;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Rethrower(int value)
    {
        try { return Thrower(value, 2); }
        catch (Carried) { throw; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Nested(int value)
    {
        try { return Rethrower(value); }
        catch (Carried e) when (!Accepts(e, value)) { return -1; }
        catch (Carried e)
        {
            try { Thrower(e.Value + 1, 1); }
            catch (Carried inner) when (inner.Value == value + 1) { return value; }
            finally { trace += 1; }
            return -2;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Exceptions()
    {
        long sum = 0;
        for (int i = 0; i < 10; i++)
        {
            trace = 0;
            sum += Nested(i);
            sum += trace;
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Descend(int depth, bool translate)
    {
        if (depth == 0) throw new InvalidOperationException();
        try { return Descend(depth - 1, translate); }
        catch (InvalidOperationException e) when (translate && depth % 4 == 0)
        {
            throw new InvalidOperationException("again", e);
        }
        finally { trace++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long DeepUnwind()
    {
        trace = 0;
        for (int i = 0; i < 2; i++)
        {
            try { Descend(12, i == 1); }
            catch (InvalidOperationException) { trace++; }
        }
        return trace;
    }

    sealed class Holder { public int Value; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Divide(int a, int b) => a / b;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ValueOf(Holder h) => h.Value;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Faults()
    {
        int caught = 0;
        Holder none = null;
        try { ValueOf(none); } catch (NullReferenceException) { caught++; }
        try { Divide(1, 0); } catch (DivideByZeroException) { caught++; }
        try { caught += none.Value; } catch (NullReferenceException) when (caught == 2) { caught++; }
        return caught;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long AsyncThrow()
    {
        return Outer().GetAwaiter().GetResult();

        static async System.Threading.Tasks.Task<long> Outer()
        {
            try { return await Inner(); }
            catch (Carried e) { return e.Value; }
        }

        static async System.Threading.Tasks.Task<long> Inner()
        {
            await System.Threading.Tasks.Task.CompletedTask;
            throw new Carried(7);
        }
    }

    // Handlers of one method on top of one another: a funclet's method has several
    // frames, of which one is the funclet's.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Recurse(int depth)
    {
        if (depth == 0) return 0;
        try { throw new Carried(depth); }
        catch (Carried) { return 1 + Recurse(depth - 1); }
        finally { if (depth == 2) trace += RecurseFinally(1); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RecurseFinally(int depth)
    {
        int n = 0;
        try { if (depth > 0) throw new Carried(depth); }
        catch (Carried) { n++; }
        finally { n += depth > 0 ? RecurseFinally(depth - 1) : 1; }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long RecursiveHandlers()
    {
        trace = 0;
        return Recurse(4) + trace;
    }
}
