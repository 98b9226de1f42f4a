// Handlers of exceptions: their code is in functions of its own, called funclets.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.ExceptionServices;

namespace Lines;

static class Handlers
{
    public static readonly Place[] Places =
    [
        new("try", InTry),
        new("catch", InCatch),
        new("catch-calls", CatchCalls),
        new("catch-two", SecondCatch),
        new("catch-nested", NestedCatch),
        new("catch-rethrow", CatchesRethrown),
        new("catch-in-loop", CatchInLoop),
        new("catch-in-lambda", CatchInLambda),
        new("catch-generic", CatchGeneric<InvalidOperationException>),
        new("finally", InFinally),
        new("finally-thrown", FinallyOfThrown),
        new("finally-nested", FinallyInCatch),
        new("finally-return", FinallyOfReturn),
        new("filter", InFilter),
        new("filter-second", SecondFilter),
        new("filter-throws", AfterFilterThrew),
        new("fault", FaultOfIterator),
        new("using-thrown", UsingOfThrown),
        new("lock-thrown", LockOfThrown),
        new("rethrow", Rethrows),
        new("rethrow-info", RethrowsInfo),
        new("null-reference", NullReference),
        new("divide", DivideByZero),
        new("first-chance", FirstChance),
    ];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Throw(int n)
    {
        if (n > 0)
            throw new InvalidOperationException("wanted"); // @filter @filter-second @first-chance @fault
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Down(int n)
    {
        return Here.Stop() + n; // @catch-calls @finally-nested @catch-nested
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InTry()
    {
        int n = 1;
        try
        {
            n++;
            n += Here.Stop(); // @try
        }
        catch (InvalidOperationException)
        {
            n = 3;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InCatch()
    {
        int n = 1;
        try
        {
            n += Throw(1);
        }
        catch (InvalidOperationException e)
        {
            n += e.Message.Length;
            n += Here.Stop(); // @catch
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CatchCalls()
    {
        int n = 1;
        try
        {
            n += Throw(1);
        }
        catch (InvalidOperationException)
        {
            n++;
            n += Down(n); // @catch-calls
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SecondCatch()
    {
        int n = 1;
        try
        {
            n += Throw(1);
        }
        catch (ArgumentException)
        {
            n += 2;
        }
        catch (InvalidOperationException)
        {
            n += 3;
            n += Here.Stop(); // @catch-two
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int NestedCatch()
    {
        int n = 1;
        try
        {
            n += Throw(1);
        }
        catch (InvalidOperationException)
        {
            try
            {
                n += Throw(2);
            }
            catch (InvalidOperationException e)
            {
                n += e.Message.Length;
                n += Down(n); // @catch-nested
            }
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CatchAndRethrow()
    {
        try
        {
            return Throw(1) + 1;
        }
        catch (InvalidOperationException)
        {
            throw;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CatchesRethrown()
    {
        int n = 1;
        try
        {
            n += CatchAndRethrow();
        }
        catch (InvalidOperationException)
        {
            n += Here.Stop(); // @catch-rethrow
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CatchInLoop()
    {
        int n = 0;
        for (int i = 0; i < 20; i++)
        {
            try
            {
                n += Throw(i);
            }
            catch (InvalidOperationException)
            {
                if (i == 19)
                    n += Here.Stop(); // @catch-in-loop
            }
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CatchInLambda()
    {
        int n = 0;
        Action a = () =>
        {
            try
            {
                n += Throw(1);
            }
            catch (InvalidOperationException)
            {
                n += Here.Stop(); // @catch-in-lambda
            }
        };
        a(); // @catch-in-lambda
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CatchGeneric<T>() where T : Exception
    {
        int n = typeof(T).Name.Length;
        try
        {
            n += Throw(1);
        }
        catch (T)
        {
            n += Here.Stop(); // @catch-generic
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InFinally()
    {
        int n = 1;
        try
        {
            n += Environment.ProcessId;
        }
        finally
        {
            n++;
            n += Here.Stop(); // @finally
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int WithFinally()
    {
        int n = 1;
        try
        {
            n += Throw(1); // of which StackTrace speaks
        }
        finally
        {
            n++;
            n += Here.Stop(); // @finally-thrown
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int FinallyOfThrown()
    {
        try
        {
            return WithFinally() + 1; // @finally-thrown
        }
        catch (InvalidOperationException)
        {
            return 0;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int FinallyInCatch()
    {
        int n = 1;
        try
        {
            n += Throw(1);
        }
        catch (InvalidOperationException)
        {
            try
            {
                n += Environment.ProcessId;
            }
            finally
            {
                n += Down(n); // @finally-nested
            }
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int FinallyOfReturn()
    {
        int n = 1;
        try
        {
            if (n == 1)
                return n + 1; // @finally-return
            n++;
        }
        finally
        {
            Here.Stop(); // @finally-return
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Judge() => Here.Stop() > 0; // @filter @filter-second

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InFilter()
    {
        int n = 1;
        try
        {
            n += Throw(1); // @filter
        }
        catch (InvalidOperationException) when (Judge()) // @filter
        {
            n++;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SecondFilter()
    {
        int n = 1;
        try
        {
            n += Throw(1); // @filter-second
        }
        catch (ArgumentException) when (n == 1)
        {
            n++;
        }
        catch (InvalidOperationException e) when (e.Message.Length > 3 && Judge()) // @filter-second
        {
            n += 2;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AfterFilterThrew()
    {
        int n = 1;
        try
        {
            n += Throw(1);
        }
        catch (InvalidOperationException) when (Throw(2) > 0)
        {
            n++;
        }
        catch (InvalidOperationException)
        {
            n += Here.Stop(); // @filter-throws
        }
        return n;
    }

    // Iterators have fault blocks.
    static System.Collections.Generic.IEnumerable<int> Faulty()
    {
        try
        {
            yield return 1;
            yield return Throw(1); // not here
        }
        finally
        {
            Here.Stop(); // @fault
        }
    } // the fault block @fault

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int FaultOfIterator()
    {
        int sum = 0;
        try
        {
            foreach (int n in Faulty()) // @fault
                sum += n;
        }
        catch (InvalidOperationException)
        {
            sum = 0;
        }
        return sum;
    }

    sealed class Resource : IDisposable
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public void Dispose() => Here.Stop(); // @using-thrown
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int UsesResource()
    {
        using (var r = new Resource()) // @using-thrown
        {
            return Throw(1) + 1; // the compiler gives the call of Dispose no line @using-thrown
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int UsingOfThrown()
    {
        try
        {
            return UsesResource() + 1; // @using-thrown
        }
        catch (InvalidOperationException)
        {
            return 0;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LockOfThrown()
    {
        int n = 0;
        try
        {
            lock (new object())
            {
                n += Throw(1);
            }
        }
        catch (InvalidOperationException)
        {
            n += Here.Stop(); // @lock-thrown
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Rethrows()
    {
        int n = 0;
        try
        {
            try
            {
                n += Throw(1);
            }
            catch (InvalidOperationException)
            {
                n++;
                throw;
            }
        }
        catch (InvalidOperationException)
        {
            n += Here.Stop(); // @rethrow
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RethrowsInfo()
    {
        int n = 0;
        ExceptionDispatchInfo info = null;
        try
        {
            n += Throw(1);
        }
        catch (InvalidOperationException e)
        {
            info = ExceptionDispatchInfo.Capture(e);
        }
        try
        {
            info.Throw();
        }
        catch (InvalidOperationException)
        {
            n += Here.Stop(); // @rethrow-info
        }
        return n;
    }

    sealed class Node { public int Value = 1; public Node Next = null; }

    // A fault of the processor, not a throw statement.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int NullReference()
    {
        int n = 0;
        try
        {
            n += new Node().Next.Value;
        }
        catch (NullReferenceException)
        {
            n += Here.Stop(); // @null-reference
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int DivideByZero()
    {
        int n = Environment.ProcessId;
        try
        {
            n /= n - Environment.ProcessId;
        }
        catch (DivideByZeroException)
        {
            n += Here.Stop(); // @divide
        }
        return n;
    }

    [ThreadStatic] static bool wanted;

    static void Chance(object sender, FirstChanceExceptionEventArgs e)
    {
        if (!wanted) return;
        wanted = false;
        Here.Stop(); // @first-chance
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int FirstChance()
    {
        AppDomain.CurrentDomain.FirstChanceException += Chance;
        wanted = true;
        try
        {
            return Throw(1) + 1; // @first-chance
        }
        catch (InvalidOperationException)
        {
            AppDomain.CurrentDomain.FirstChanceException -= Chance;
            return 0;
        }
    }
}
