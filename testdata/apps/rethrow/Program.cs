// Throws exceptions, and throws them again in every way that C# and the libraries have. Each way is a
// command on stdin, and happens once, or as often as the number after it says. All run on the thread that
// reads stdin, unless they say otherwise. --ways A,B,… has the program do these and end.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.ExceptionServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Rethrow;

/// <summary>Its type's own message is not the one that it shows.</summary>
class Overridden : Exception
{
    public Overridden() : base("stored") { }
    public override string Message => "shown";
}

class Outer
{
    public class Nested : Exception { public Nested(string message) : base(message) { } }
}

static class Program
{
    static int sink;
    static object garbage;

    static void Main(string[] args)
    {
        App.Start(args);
        App.Answer = Answer;
        foreach (string way in App.Text("ways", "").Split(',', StringSplitOptions.RemoveEmptyEntries)) Answer(way);
        if (App.Flag("ways"))
        {
            Thread.Sleep(1000); // the code that has run last can still be named
            return;
        }
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static IEnumerable<string> Answer(string command)
    {
        string[] words = command.Split(' ');
        int times = words.Length > 1 ? int.Parse(words[1]) : 1;
        for (int i = 0; i < times; i++) Run(words[0]);
        return [];
    }

    static void Run(string way)
    {
        switch (way)
        {
            case "once": Once(); break;
            case "again": Again(); break;
            case "throw-ex": ThrowEx(); break;
            case "filter": Filtered(); break;
            case "finally": Finally(); break;
            case "new": NewInHandler(); break;
            case "wrap": Wrapped(); break;
            case "dispatch": Dispatch(); break;
            case "async": Async().Wait(); break;
            case "async-slow": AsyncSlow().Wait(); break;
            case "async-collect": AsyncCollect().Wait(); break;
            case "async-kept": Ends(Kept()); break;
            case "async-alone": Ends(Alone()); break;
            case "async-early": Ends(L1("early", 0)); break;
            case "async-before": Before().Wait(); break;
            case "wait": Waits(); break;
            case "all": All().Wait(); break;
            case "never-thrown": NeverThrown().Wait(); break;
            case "thread": OtherThread(); break;
            case "handler": OtherThreadInHandler(); break;
            case "stored": Stored(); Stored(); break;
            case "overridden": OverriddenMessage(); break;
            case "nested-type": NestedType(); break;
            case "hostile": Hostile(); break;
            case "null": NullReference(); break;
            case "same-place": SamePlace().Wait(); break;
            default: throw new ArgumentException(way);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throw(string message) => throw new InvalidOperationException(message);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Once()
    {
        try { Throw("once"); }
        catch (InvalidOperationException) { sink++; }
    }

    /// <summary>throw; twice.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Again()
    {
        try { Again2(); }
        catch (InvalidOperationException) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Again2()
    {
        try { Again1(); }
        catch (InvalidOperationException) { sink++; throw; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Again1()
    {
        try { Throw("again"); }
        catch (InvalidOperationException) { sink++; throw; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowEx()
    {
        try { ThrowEx1(); }
        catch (InvalidOperationException) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ThrowEx1()
    {
        try { Throw("throw ex"); }
        catch (InvalidOperationException e) { sink++; throw e; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Filtered()
    {
        try { Filtered1(); }
        catch (InvalidOperationException e) when (Passes(e)) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Filtered1()
    {
        try { Throw("filter"); }
        catch (InvalidOperationException e) when (!Passes(e)) { sink--; }
        catch (InvalidOperationException) { sink++; throw; }
    }

    static bool Passes(Exception e) => e.Message.Length > 0;

    /// <summary>An exception that is thrown again by a finally block's own exception's handler.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Finally()
    {
        try
        {
            try { Throw("outside"); }
            finally { Again(); }
        }
        catch (InvalidOperationException) { sink++; }
    }

    /// <summary>A new exception in a handler of an equal one.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void NewInHandler()
    {
        try
        {
            try { Throw("new"); }
            catch (InvalidOperationException) { Throw("new"); }
        }
        catch (InvalidOperationException) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Wrapped()
    {
        try
        {
            try { Throw("inner"); }
            catch (InvalidOperationException e) { throw new ApplicationException("outer", e); }
        }
        catch (ApplicationException) { sink++; }
    }

    /// <summary>Captured in one handler, and thrown after it.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Dispatch()
    {
        ExceptionDispatchInfo captured = null;
        try { Throw("dispatch"); }
        catch (InvalidOperationException e) { captured = ExceptionDispatchInfo.Capture(e); }
        try { captured.Throw(); }
        catch (InvalidOperationException) { sink++; }
    }

    static async Task Async()
    {
        try { await L1("async", 0); }
        catch (InvalidOperationException) { sink++; }
    }

    static async Task AsyncSlow()
    {
        try { await L1("async slow", 20); }
        catch (InvalidOperationException) { sink++; }
    }

    /// <summary>Its task keeps the exception.</summary>
    static async Task Kept() { await L1("kept", 20); sink++; }

    static async Task Alone()
    {
        await Task.Delay(20);
        Throw("alone");
    }

    /// <summary>A task keeps an exception, and the method that has the task catches another one.</summary>
    static async Task Before()
    {
        Task task = L3("before", 0);
        try { Throw("after"); }
        catch (InvalidOperationException) { sink++; }
        await Task.WhenAny(task);
    }

    static void Ends(Task task)
    {
        ((IAsyncResult)task).AsyncWaitHandle.WaitOne();
        GC.KeepAlive(task.Exception);
    }

    static async Task L1(string message, int ms) { await L2(message, ms); sink++; }

    static async Task L2(string message, int ms) { await L3(message, ms); sink++; }

    static async Task L3(string message, int ms)
    {
        if (ms > 0) await Task.Delay(ms);
        Throw(message);
        await Task.Yield();
    }

    /// <summary>The exception is moved by the garbage collector between its throws.</summary>
    static async Task AsyncCollect()
    {
        try { await Collecting(Collecting(L3("async collect", 0))); }
        catch (InvalidOperationException) { sink++; }
    }

    static async Task Collecting(Task task)
    {
        await Task.Delay(5);
        for (int i = 0; i < 1000; i++) garbage = new byte[1000];
        GC.Collect(2, GCCollectionMode.Forced, true, true);
        await task;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Waits()
    {
        try { Task.Run(() => Throw("wait")).Wait(); }
        catch (AggregateException) { sink++; }
    }

    /// <summary>Of three equal exceptions one is thrown again.</summary>
    static async Task All()
    {
        try { await Task.WhenAll(L3("all", 0), L3("all", 0), L3("all", 0)); }
        catch (InvalidOperationException) { sink++; }
    }

    /// <summary>The first throw is that of the await.</summary>
    static async Task NeverThrown()
    {
        try { await NeverThrown1(); }
        catch (InvalidOperationException) { sink++; }
    }

    static async Task NeverThrown1()
    {
        await Task.FromException(new InvalidOperationException("never thrown"));
        sink++;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OtherThread()
    {
        ExceptionDispatchInfo captured = null;
        try { Throw("thread"); }
        catch (InvalidOperationException e) { captured = ExceptionDispatchInfo.Capture(e); }
        var thread = new Thread(() =>
        {
            try { captured.Throw(); }
            catch (InvalidOperationException) { sink++; }
        });
        thread.Start();
        thread.Join();
    }

    /// <summary>Another thread throws it with "throw e" while the handler runs.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OtherThreadInHandler()
    {
        try { Throw("handler"); }
        catch (InvalidOperationException e)
        {
            var thread = new Thread(() =>
            {
                try { throw e; }
                catch (InvalidOperationException) { sink++; }
            });
            thread.Start();
            thread.Join();
        }
    }

    static readonly Exception stored = new InvalidOperationException("stored");

    /// <summary>One object that is thrown as new each time.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Stored()
    {
        try { throw stored; }
        catch (InvalidOperationException) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OverriddenMessage()
    {
        try { throw new Overridden(); }
        catch (Overridden) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void NestedType()
    {
        try { throw new Outer.Nested("nested"); }
        catch (Outer.Nested) { sink++; }
    }

    static int unique;

    /// <summary>Escapes, line breaks, half a character, a long text, and another one each time.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Hostile()
    {
        string text = $"\x1b[31mred\r\nline\u202e \ud800 {unique++} " + new string('x', 100_000);
        try { Throw(text); }
        catch (InvalidOperationException) { sink++; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void NullReference()
    {
        try { garbage = ((string)null).Length; }
        catch (NullReferenceException) { sink++; }
    }

    /// <summary>Two exceptions of one place in flight, and the garbage collector moves both.</summary>
    static async Task SamePlace()
    {
        Task a = L3("same place", 0), b = L3("same place", 0);
        try { await Collecting(b); }
        catch (InvalidOperationException) { sink++; }
        try { await Collecting(a); }
        catch (InvalidOperationException) { sink++; }
    }
}
