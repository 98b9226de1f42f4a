// Fails in every way that leaves an exception with a stack trace. --die WAY has the process die once its
// stdin ends; .NET then prints the exception. --hold A,B,… has a thread for each way, named after it, that
// stays in the handler of its exception; before that it prints the exception itself, as ToString has it:
//
//     <<< WAY
//     the text
//     >>>
//
// --collect has the garbage collector move objects all the time, and --storm throws and catches exceptions
// meanwhile, on a thread of that name.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Failing;

static class Program
{
    static readonly CountdownEvent held = new(1);

    static void Main(string[] args)
    {
        App.Start(args);
        foreach (string way in App.Text("hold", "").Split(',', StringSplitOptions.RemoveEmptyEntries))
        {
            held.AddCount();
            App.Background(way, () => Held.Ways[way]());
        }
        held.Signal();
        held.Wait();
        if (App.Flag("collect")) App.Background("collect", Storm.Collect);
        if (App.Flag("storm")) App.Background("storm", Storm.Throw);
        App.Line("READY");
        App.WaitForEnd();
        if (App.Flag("die")) Deaths.Ways[App.Text("die", "")]();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    /// <summary>Prints an exception and does not return.</summary>
    public static bool Hold(string way, Exception e)
    {
        string text = e.ToString();
        lock (held)
        {
            Console.Error.WriteLine($"<<< {way}\n{text}\n>>>");
            Console.Error.Flush();
        }
        held.Signal();
        Thread.Sleep(Timeout.Infinite);
        return true;
    }
}

/// <summary>Its type's own message is not the one that it shows.</summary>
class OrderRefused : Exception
{
    public OrderRefused(string message, Exception inner = null) : base(message, inner) { }
}

/// <summary>Calls that end in an exception.</summary>
static class Shop
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Validate(int depth, string what)
    {
        if (depth == 0)
        {
            throw new OrderRefused(what);
        }
        return Validate(depth - 1, what) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Process(string what)
    {
        int n = 1;
        n += Validate(3, what);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static T Generic<T>(T value, List<T> list)
    {
        list.Add(value);
        Process("generic");
        return value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Wrapped(int depth)
    {
        try
        {
            if (depth == 0) Process("innermost");
            else Wrapped(depth - 1);
        }
        catch (Exception e)
        {
            throw new OrderRefused("level " + depth, e);
        }
    }

    public static Exception Caught(string what)
    {
        try
        {
            Process(what);
            return null;
        }
        catch (OrderRefused e)
        {
            return e;
        }
    }
}
