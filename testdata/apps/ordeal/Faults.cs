// CPU faults that the runtime turns into exceptions.
using System;
using System.Runtime.CompilerServices;

namespace Ordeal;

static class Faults
{
    const int Threads = 4, InRound = 1000;

    // In 40 rounds of four threads two thirds of the faults are more than 100,000.
    public static Worker[] Workers => [new("faults", Threads, Round, Expected(), least: 40)];

    sealed class Cell { public long Value = 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Dereference(Cell none) => none.Value;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Divide(long a, long zero) => a / zero;

    // What lives across the faults, some of it in registers, must still be right after
    // each: a, b and c come back to where Expected has them.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Round()
    {
        long a = 1, b = 2, c = 3;
        for (int i = 0; i < InRound; i++)
        {
            try
            {
                b += a + (i % 3 == 0 ? Divide(i, 0) : Dereference(null));
                b = -1; // never
            }
            catch (NullReferenceException) { a = Next(a, 5 + i); }
            catch (DivideByZeroException) { a = Next(a, 7 + i); }
            c = Next(c, a ^ b);
        }
        return a ^ c;
    }

    // The same without a fault.
    static long Expected()
    {
        long a = 1, c = 3;
        for (int i = 0; i < InRound; i++)
        {
            a = Next(a, (i % 3 == 0 ? 7 : 5) + i);
            c = Next(c, a ^ 2);
        }
        return a ^ c;
    }

    static long Next(long x, long y) => x * 6364136223846793005 + y;
}
