// Blocked while an exception is handled: in a filter the throwing frames are
// still there; in a catch or finally body they are gone, or about to be.
using System;
using System.Runtime.CompilerServices;

namespace Scenarios;

static class Exceptions
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Throw() => throw new InvalidOperationException("thrown by a scenario");

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ThrowDeep(int depth) => depth == 0 ? Throw() : ThrowDeep(depth - 1) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool BlockInFilter() => Here.Block() > 0;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Filter()
    {
        try { return ThrowDeep(3) + 1; }
        catch (InvalidOperationException) when (BlockInFilter()) { return 0; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int FilterThrows()
    {
        try { return ThrowDeep(1) + 1; }
        catch (InvalidOperationException) when (Throw() > 0) { return 0; }
        catch (InvalidOperationException) { return Here.Block() + 1; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Catch()
    {
        try { return Throw() + 1; }
        catch (InvalidOperationException e) { return Here.Block() + e.Message.Length; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int CatchDeep()
    {
        int n = 0;
        try { n = ThrowDeep(50) + 1; }
        catch (InvalidOperationException) when (n == 0) { n = Calls.Deep(3); }
        return n + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int BlockInFinally(int n)
    {
        try { n += ThrowDeep(3); }
        finally { n += Here.Block(); }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Finally()
    {
        try { return BlockInFinally(1) + 1; }
        catch (InvalidOperationException) { return 0; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int FinallyWithoutException()
    {
        int n = 1;
        try { n += Environment.ProcessId; }
        finally { n += Here.Block(); }
        return n;
    }

    // An exception in a catch body, caught in another, which throws a third.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Nested()
    {
        try { return Throw() + 1; }
        catch (InvalidOperationException)
        {
            try { return ThrowDeep(2) + 1; }
            catch (InvalidOperationException)
            {
                try { throw new ArgumentException("third"); }
                catch (ArgumentException e) { return Here.Block() + e.Message.Length; }
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CatchAndRethrow()
    {
        try { return ThrowDeep(2) + 1; }
        catch (InvalidOperationException) { throw; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Rethrow()
    {
        try { return CatchAndRethrow() + 1; }
        catch (InvalidOperationException) { return Here.Block() + 1; }
    }

    sealed class Resource : IDisposable
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public void Dispose() => Value = Here.Block() + 1;
        public int Value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int UseResource()
    {
        using var r = new Resource();
        return ThrowDeep(1) + r.Value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Using()
    {
        try { return UseResource() + 1; }
        catch (InvalidOperationException) { return 0; }
    }

    sealed class Node { public int Value = 1; public readonly Node Next = null; }

    // A hardware fault, not a throw statement.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Dereference(Node n) => n.Next.Value + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int NullReference()
    {
        try { return Dereference(new Node()) + 1; }
        catch (NullReferenceException) { return Here.Block() + 1; }
    }
}
