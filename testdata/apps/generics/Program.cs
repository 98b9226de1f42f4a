// Blocked threads in every kind of generic method. Each says which instantiations are on its stack.
//
//   --storm N     N threads that run generic methods and allocate, for ever: see Storm.cs
//   --stdin, --max-seconds: see App.cs
//
// Any line on stdin is answered by a line for each blocked thread: its place, its thread id, the instantiation
// of Over whose lambdas are on its stack, and its other generic frames, leaf first. Bars are between these.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Threading;
using Common;
using static Generics.Say;

namespace Generics;

static class Program
{
    static int started;
    static string over = "-";

    static void Main(string[] args)
    {
        App.Start(args);
        Over<Order, Bill>("ref");
        Over<string, List<Order>>("generic");
        Over<int, Bill>("value");
        Over<Pair<Bill, int>, Order[]>("struct");
        Over<List<Pair<Order, List<Bill[]>>>, object>("deep");
        Collectible();
        while (Blocked < started) Thread.Sleep(5);
        Thread.Sleep(100);
        Storm.Start(App.Int("storm", 0));
        App.Answer = _ => Lines;
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Place(string name, Go body)
    {
        started++;
        string what = over;
        App.Background(name, () => On(what, body), 1 << 20);
    }

    static void On(string what, Go body)
    {
        Outermost = what;
        body();
    }

    // The lambdas are generic, too: Over is what they are called.
    static void Over<A, B>(string of)
    {
        over = $"Generics.Program.Over<{N<A>()}, {N<B>()}>";
        string what = over;
        Go go = Block;
        Place($"{of}-this", () => new Box<A>().Use(go));
        Place($"{of}-ctor", () => new Box<A>(go).GetHashCode());
        Place($"{of}-plain", () => Said($"Generics.Box<{N<A>()}>.Plain", () => new Box<A>().Plain(go)));
        Place($"{of}-keeps", () => Said($"Generics.Box<{N<A>()}>.Keeps", () => new Box<A>().Keeps(go)));
        Place($"{of}-static", () => Box<A>.Static(go));
        Place($"{of}-pstatic", () => Said($"Generics.Box<{N<A>()}>.PlainStatic", () => Box<A>.PlainStatic(go)));
        Place($"{of}-generic", () => new Box<A>().Generic<B>(go));
        Place($"{of}-gstatic", () => Box<A>.GenericStatic<B>(go));
        Place($"{of}-property", () => new Box<A>().Property);
        Place($"{of}-virtual", () => new Box<B>().Virtual(go));
        Place($"{of}-derived", () => new ListBox<A>().Virtual(go));
        Place($"{of}-derived2", () => new OrderBox().Virtual(() => new ListBox<B>().Use(go)));
        Place($"{of}-lambda", () => new Box<A>().Lambda<B>(go));
        Place($"{of}-nested", () => new Box<A>.Inner<B>().Use<A>(go));
        Place($"{of}-nested2", () => new Box<B>.Inner<A>().This(go));
        Place($"{of}-valuethis", () => new Pair<A, B>().Use(go));
        Place($"{of}-valueplain", () => Said($"Generics.Pair<{N<A>()}, {N<B>()}>.Plain", () => new Pair<A, B>().Plain(go)));
        Place($"{of}-valuegen", () => new Pair<A, B>().Generic<B>(go));
        Place($"{of}-valueiface", () => ((IMaker<A>)new Pair<A, B>()).Make(go));
        Place($"{of}-valuedef", () => ((IMaker<A>)new Pair<A, B>()).Default(go));
        Place($"{of}-iface", () => ((IMaker<B>)new Maker<B>()).Make(go));
        Place($"{of}-default", () => ((IMaker<B>)new Maker<B>()).Default(go));
        Place($"{of}-abstract", () => Methods.Created<Maker<A>, A>(go));
        Place($"{of}-gvirtual", () => ((Visitor)new SayingVisitor()).Visit<A>(go));
        Place($"{of}-method", () => Methods.Use<A>(go));
        Place($"{of}-method2", () => Methods.Use<A>(() => Methods.Use<B>(() => Methods.Use<Pair<A, B>>(go))));
        Place($"{of}-pmethod", () => Said($"Generics.Methods.Plain<{N<A>()}>", () => Methods.Plain<A>(go)));
        Place($"{of}-growing", () => Methods.Growing<A, B>(5, go));
        Place($"{of}-local", () => Methods.Local<A>(go));
        Place($"{of}-slambda", () => Methods.Lambda<A>());
        Place($"{of}-iterator", () => Methods.Items<A>(go).Count());
        Place($"{of}-async", () => Said($"Generics.Methods.RunAsync<{N<A>()}>",
            () => Methods.RunAsync<A>(go, false).Id)); // the method that starts the state machine, too
        Place($"{of}-awaited", () => Methods.RunAsync<B>(() => Rename($"{of}-awaited", what, go), true).Id);
        Place($"{of}-catch", () => Methods.Catch<A>(go));
        Place($"{of}-finally", () => Methods.Finally<A>(go));
        Place($"{of}-finally2", () => new Looping<B>().Finally(go));
        Place($"{of}-loop", () => Methods.Loop<A>(200_000, go));
        Place($"{of}-loop2", () => new Looping<A>().Loop(200_000, go));
        Place($"{of}-delegate", () => ((Func<Go, int>)new Box<A>().Use)(go));
        Place($"{of}-delegate2", () => ((Func<Go, int>)Methods.Use<B>)(go));
        Place($"{of}-foreach", () => Said($"System.Collections.Generic.List<{N<A>()}>.ForEach", () =>
        {
            new List<A> { default }.ForEach(_ => go());
            return 1;
        }));
        Place($"{of}-getoradd", () => Said($"System.Collections.Concurrent.ConcurrentDictionary<string, {N<B>()}>.GetOrAdd",
            () => new ConcurrentDictionary<string, B>().GetOrAdd("a", _ => { go(); return default; }) is null ? 1 : 2));
    }

    static int Said(string frame, Go body)
    {
        In(frame);
        return body();
    }

    static int Rename(string name, string over, Go go)
    {
        Thread.CurrentThread.Name = name;
        Outermost = over;
        return go();
    }

    /// <summary>A type argument that can be unloaded.</summary>
    static void Collectible()
    {
        var assembly = AssemblyBuilder.DefineDynamicAssembly(new("passing"), AssemblyBuilderAccess.RunAndCollect);
        Type type = assembly.DefineDynamicModule("passing").DefineType("Passing", TypeAttributes.Public).CreateType();
        var use = typeof(Methods).GetMethod(nameof(Methods.Use)).MakeGenericMethod(type).CreateDelegate<Func<Go, int>>();
        Place("passing-method", () => use(Block));
        object box = Activator.CreateInstance(typeof(Box<>).MakeGenericType(type));
        var method = box.GetType().GetMethod("Use").CreateDelegate<Func<Go, int>>(box);
        Place("passing-this", () => method(Block));
    }
}
