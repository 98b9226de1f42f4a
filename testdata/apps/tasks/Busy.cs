// Async methods that use a CPU after an await, for a while at a time.
using System;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Tasks;

static class Busy
{
    /// <summary>Starts some loops, which use a CPU for so many microseconds at a time.</summary>
    public static void Fill(int loops, int microseconds)
    {
        for (int i = 0; i < loops; i++) _ = Serve(microseconds);
    }

    static readonly SemaphoreSlim permit = new(1);

    /// <summary>Starts some loops, which wait for one permit all the time, and have it for a moment.</summary>
    public static void Queue(int loops)
    {
        for (int i = 0; i < 3; i++) GC.Collect(); // no later collection moves the semaphore
        for (int i = 0; i < loops; i++) _ = Take();
    }

    static async Task Take()
    {
        while (!App.Ending)
        {
            await permit.WaitAsync();
            await Task.Yield();
            permit.Release();
        }
    }

    static async Task Serve(int microseconds)
    {
        while (!App.Ending) await HandleOrder(microseconds);
    }

    static async Task<int> HandleOrder(int microseconds)
    {
        int stock = await LoadStock(microseconds);
        return stock + 1;
    }

    static async ValueTask<int> LoadStock(int microseconds)
    {
        await Task.Delay(1);
        return Spin(microseconds);
    }

    static int Spin(int microseconds)
    {
        long end = Stopwatch.GetTimestamp() + microseconds * (Stopwatch.Frequency / 1_000_000);
        int n = 0;
        while (Stopwatch.GetTimestamp() < end) n++;
        return n;
    }
}
