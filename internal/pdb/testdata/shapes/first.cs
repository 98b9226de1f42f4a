// Every kind of code that a compiler makes sequence points for. Half of the class is in second.cs, so
// that its constructor's points are in two documents.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;

partial class Shapes
{
    readonly int one = Environment.TickCount;

    public Shapes()
    {
        Console.WriteLine(one + two);
    }

    static int Main(string[] args)
    {
        var shapes = new Shapes();
        int sum = Iterate(args.Length).Select(x => x + shapes.one).Where(x =>
        {
            int half = x / 2;
            return half * 2 == x;
        }).Sum();
        sum += Local(3);
        Task<int> task = Await(sum);
        Forget(task);
        return task.Result + Lied(sum) + Generated(sum);

        int Local(int n) => n == 0 ? 0 : Local(n - 1) + 1;
    }

    static IEnumerable<int> Iterate(int n)
    {
        for (int i = 0; i < n; i++)
        {
            yield return i;
        }
        try
        {
            yield return -1;
        }
        finally
        {
            Console.WriteLine("done");
        }
    }

    static async Task<int> Await(int n)
    {
        await Task.Yield();
        try
        {
            await Task.Delay(n);
        }
        catch (Exception e) when (e.Message == "")
        {
            await Task.Delay(1);
        }
        return n;
    }

    static async void Forget(Task task)
    {
        await task;
    }

    static async IAsyncEnumerable<int> Stream(int n)
    {
        while (n-- > 0)
        {
            await Task.Yield();
            yield return n;
        }
    }

    static int Lied(int n)
    {
#line 4000 "elsewhere/generated.g.cs"
        n += 1;
#line hidden
        n += 2;
#line 12 "elsewhere/other.y"
        n += 3;
#line (70, 3) - (75, 9) 8 "elsewhere/page.razor"
        n += 4;
#line default
        return n;
    }

    static int Generated(int n)
    {
#line hidden
        return n + 1;
#line default
    }

    static int Wide(int n)
    {
        while (n > 0) { n--; if (n == 3) break; switch (n) { case 1: n += 2; break; default: n -= 1; break; } }
        foreach (var c in "text") lock (string.Empty) { n += c; }
        using (var e = Iterate(n).GetEnumerator()) while (e.MoveNext()) n += e.Current;
        Func<int, Func<int, int>> nested = a => b =>
            a
            + b;
                                                                                                            n += 1;
        return nested(n)(n) switch { 1 => 2, > 5 and < 9 => 3, _ => throw new Exception("no") };
    }
}
