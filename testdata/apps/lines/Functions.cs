// Functions inside functions, and those that are called through delegates.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;

namespace Lines;

static class Functions
{
    public static readonly Place[] Places =
    [
        new("lambda-static", StaticLambda),
        new("lambda-captures", () => Capturing(3)), // @lambda-captures
        new("lambda-nested", Nested),
        new("lambda-block", BlockLambda),
        new("anonymous", AnonymousMethod),
        new("local", LocalFunction),
        new("local-captures", () => LocalCapturing(2)), // @local-captures
        new("local-recurses", LocalRecursive),
        new("iterator", Iterated),
        new("iterator-finally", IteratorsFinally),
        new("linq-query", LinqQuery),
        new("linq-methods", LinqMethods),
        new("delegate-open", OpenDelegate),
        new("delegate-closed", ClosedDelegate),
        new("multicast", Multicast),
        new("function-pointer", FunctionPointer),
        new("method-group", MethodGroup),
        new("sort-comparer", SortComparer),
    ];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int StaticLambda()
    {
        Func<int> f = static () => Here.Stop() + 1; // @lambda-static
        int n = 1;
        n += f(); // @lambda-static
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Capturing(int n)
    {
        Func<int> f = () => Here.Stop() + n; // @lambda-captures
        n++;
        return f() + n; // @lambda-captures
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Nested()
    {
        int n = 2;
        Func<int, int> outer = a => // a line of its own
        {
            Func<int> inner = () => // another
                Here.Stop() + a + n; // @lambda-nested
            return inner() + 1; // @lambda-nested
        };
        return outer(4) + 1; // @lambda-nested
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int BlockLambda()
    {
        Func<int, int> f = n =>
        {
            n++;
            n += Here.Stop(); // @lambda-block
            n++;
            return n;
        };
        return f(1) + // @lambda-block
            1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AnonymousMethod()
    {
        Func<int> f = delegate { return Here.Stop() + 1; }; // @anonymous
        return f() + 1; // @anonymous
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LocalFunction()
    {
        return Local(2) + 1; // @local

        [MethodImpl(MethodImplOptions.NoInlining)]
        static int Local(int n)
        {
            n *= 2;
            return Here.Stop() + n; // @local
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LocalCapturing(int n)
    {
        int Local() => Here.Stop() + n; // @local-captures
        n++;
        return Local() + 1; // @local-captures
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LocalRecursive()
    {
        int Down(int depth)
        {
            if (depth == 0)
                return Here.Stop() + 1; // @local-recurses
            return Down(depth - 1) + 1; // @local-recurses
        }
        return Down(3) + 1; // @local-recurses
    }

    static IEnumerable<int> Numbers(int count)
    {
        for (int i = 0; i < count; i++)
        {
            yield return i;
            if (i == 1)
                yield return Here.Stop() + i; // @iterator
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Iterated()
    {
        int sum = 0;
        foreach (int n in Numbers(3)) // @iterator
        {
            sum += n;
        }
        return sum;
    }

    static IEnumerable<int> WithFinally()
    {
        try
        {
            yield return 1;
        } // @iterator-finally
        finally
        {
            Here.Stop(); // @iterator-finally
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int IteratorsFinally()
    {
        int sum = 0;
        foreach (int n in WithFinally()) // @iterator-finally
            sum += n;
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LinqQuery()
    {
        var some =
            from n in new[] { 3, 1, 2 }
            where n > 2
            select Here.Stop() + n; // @linq-query
        return some.Sum() + 1; // @linq-query
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LinqMethods() =>
        new[] { 1, 2, 3 } // @linq-methods
            .Where(n => n == 2)
            .Select(n => Here.Stop() + n) // @linq-methods
            .ToList()
            .Count;

    sealed class Counter
    {
        int count;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Next(int by)
        {
            count += by;
            return Here.Stop() + count; // @delegate-open @delegate-closed @multicast @method-group
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Quiet(int by) => count += by;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int OpenDelegate()
    {
        var f = typeof(Counter).GetMethod(nameof(Counter.Next)).CreateDelegate<Func<Counter, int, int>>();
        return f(new Counter(), 1) + 1; // @delegate-open
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ClosedDelegate()
    {
        Func<int, int> f = new Counter().Next;
        return f(1) + 1; // @delegate-closed
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Multicast()
    {
        var counter = new Counter();
        Func<int, int> f = counter.Quiet;
        f += counter.Next;
        f += counter.Quiet;
        return f(1) + 1; // @multicast
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Pointed(int n) => Here.Stop() + n; // @function-pointer

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe int FunctionPointer()
    {
        delegate*<int, int> f = &Pointed;
        return f(2) + 1; // @function-pointer
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int MethodGroup() => Apply(new Counter().Next) + 1; // @method-group

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Apply(Func<int, int> f) => f(1) + 1; // @method-group

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SortComparer()
    {
        int[] all = [2, 1];
        Array.Sort(all, (a, b) => Here.Stop() + a - b); // @sort-comparer
        return all[0];
    }
}
