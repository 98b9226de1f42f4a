// Load contexts that were unloaded, and that something still keeps: each one another thing, after which it is named.
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Runtime.Loader;
using System.Threading;
using Common;

namespace Contexts;

public class Treasure { }

public class Plugin
{
    public static Treasure Kept = new();
    public static volatile bool Runs;

    public void Spin()
    {
        Runs = true;
        while (true) Thread.Sleep(1000);
    }
}

sealed class Context(string name) : AssemblyLoadContext(name, isCollectible: true)
{
    protected override Assembly Load(AssemblyName name) => null;
}

static class Program
{
    static readonly object key = new();
    static readonly ConditionalWeakTable<object, object> table = new();
    static GCHandle handle;
    [ThreadStatic] static object own;
    static object list, array;

    static void Main(string[] args)
    {
        App.Start(args);
        string[] causes = ["handle", "threadstatic", "table", "thread", "list", "array"];
        var alive = new List<WeakReference>();
        foreach (string cause in causes) alive.Add(Keep(cause));
        for (int i = 0; i < 5; i++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        foreach (WeakReference w in alive)
            if (!w.IsAlive) App.Fail("a load context is gone");
        App.Line("READY");
        App.WaitForEnd();
        GC.KeepAlive(own);
        App.Exit(0);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static WeakReference Keep(string cause)
    {
        var context = new Context(cause);
        byte[] file = File.ReadAllBytes(typeof(Program).Assembly.Location);
        Type type = context.LoadFromStream(new MemoryStream(file)).GetType("Contexts.Plugin");
        RuntimeHelpers.RunClassConstructor(type.TypeHandle);
        object plugin = Activator.CreateInstance(type);
        switch (cause)
        {
            case "handle": handle = GCHandle.Alloc(plugin); break;
            case "threadstatic": own = plugin; break;
            case "table": table.Add(key, plugin); break;
            case "list": list = Activator.CreateInstance(typeof(List<>).MakeGenericType(type)); break;
            case "array": array = Array.CreateInstance(type, 0); break;
            case "thread":
                App.Background("plugin", (ThreadStart)Delegate.CreateDelegate(typeof(ThreadStart), plugin, "Spin"));
                FieldInfo runs = type.GetField("Runs");
                while (!(bool)runs.GetValue(null)) Thread.Sleep(1);
                break;
        }
        context.Unload();
        return new WeakReference(context);
    }
}
