// Loops, in which a method that runs is replaced (on-stack replacement).
using System;
using System.Runtime.CompilerServices;

namespace Lines;

static class Loops
{
    public static readonly Place[] Places =
    [
        new("for", For),
        new("while", While),
        new("do", Do),
        new("loop-nested", NestedLoops),
        new("loop-calls", Calling),
        new("loop-twice", Twice),
        new("loop-in-try", InTry),
        new("loop-in-catch", InCatch),
        new("loop-generic", () => OfType("s")), // @loop-generic
        new("loop-in-lambda", InLambda),
        new("after-loop", After),
    ];

    /// <summary>Enough for the runtime to replace a loop of tier-0.</summary>
    const int Many = 60_000;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int For()
    {
        int n = 0;
        for (int i = 0; i < Many; i++)
        {
            n += i & 3;
            if (i == Many - 1)
                n += Here.Stop(); // @for
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int While()
    {
        int n = 0, i = 0;
        while (i < Many)
        {
            i++;
            n ^= i;
            if (i != Many)
                continue;
            n += Here.Stop(); // @while
            n++;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Do()
    {
        int n = 0, i = 0;
        do
        {
            n += i % 5;
        }
        while (i++ < Many || Here.Stop() < 0); // @do
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int NestedLoops()
    {
        int n = 0;
        for (int i = 0; i < 300; i++)
        {
            for (int j = 0; j < 300; j++)
            {
                n += i ^ j;
                if (i == 299 && j == 299)
                    n += Here.Stop(); // @loop-nested
            }
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Calling()
    {
        int n = 0;
        for (int i = 0; i < Many; i++)
        {
            n += Called(i); // @loop-calls
            n ^= i;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Called(int i)
    {
        if (i < Many - 1)
            return i;
        return Here.Stop() + 1; // @loop-calls
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Twice()
    {
        int n = 0;
        for (int i = 0; i < Many; i++)
            n += i;
        for (int i = 0; i < Many; i++)
            n -= i / 2;
        for (int i = 0; i < Many; i++)
            if (i == Many / 2)
                n += Here.Stop(); // @loop-twice
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InTry()
    {
        int n = 0;
        try
        {
            for (int i = 0; i < Many; i++)
            {
                n += i;
                if (i == Many - 1)
                    n += Here.Stop(); // @loop-in-try
            }
        }
        finally
        {
            n++;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InCatch()
    {
        int n = 0;
        for (int i = 0; i < Many; i++)
            n ^= i;
        try
        {
            throw new InvalidOperationException();
        }
        catch (InvalidOperationException)
        {
            for (int i = 0; i < Many; i++)
                n += i;
            n += Here.Stop(); // @loop-in-catch
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int OfType<T>(T of)
    {
        int n = 0;
        for (int i = 0; i < Many; i++)
        {
            n += i;
            if (i == Many - 1)
                n += Here.Stop() + typeof(T).Name.Length; // @loop-generic
        }
        return n + of.GetHashCode();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InLambda()
    {
        int n = 0;
        Action<int> f = count =>
        {
            for (int i = 0; i < count; i++)
            {
                n += i;
                if (i == Many - 1)
                    n += Here.Stop(); // @loop-in-lambda
            }
        };
        f(Many); // @loop-in-lambda
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int After()
    {
        int n = 0;
        for (int i = 0; i < Many; i++)
        {
            n += i;
        }
        n += Here.Stop(); // @after-loop
        return n;
    }
}
