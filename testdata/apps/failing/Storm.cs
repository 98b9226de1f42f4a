using System;
using System.Threading;
using Common;

namespace Failing;

/// <summary>What makes it hard to read an exception from outside.</summary>
static class Storm
{
    static readonly object[] kept = new object[5000];

    /// <summary>Objects die, and others move into their place.</summary>
    public static void Collect()
    {
        for (int i = 0; !App.Ending; i++)
        {
            for (int k = 0; k < kept.Length; k += 3) kept[(k + i) % kept.Length] = new byte[40 + k % 200];
            GC.Collect(2, GCCollectionMode.Forced, blocking: true, compacting: true);
        }
    }

    /// <summary>The message says how deep the exception was thrown.</summary>
    public static void Throw()
    {
        for (int n = 0; !App.Ending; n = (n + 1) % 10)
        {
            try
            {
                Shop.Validate(n, "storm " + n);
            }
            catch (OrderRefused)
            {
                Thread.Sleep(n == 0 ? 1 : 0);
            }
        }
    }
}
