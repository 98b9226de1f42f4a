// Async methods that use a CPU after an await, for a while at a time.
using System.Diagnostics;
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
