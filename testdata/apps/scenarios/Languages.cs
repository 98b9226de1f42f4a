// Code under the names that the compilers of F# and Visual Basic give it. Neither compiler is here, so it is emitted.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;

namespace Scenarios;

/// <summary>What an F# closure overrides.</summary>
public interface IClosure<T> { int Invoke(T a, int n); }

/// <summary>What F#'s seq { } overrides.</summary>
public interface ISequence { int GenerateNext(ref IEnumerable<int> next); }

static class Languages
{
    [ThreadStatic] static Queue<Func<int>> pieces;

    static int Run(params Func<int>[] all)
    {
        pieces = new(all);
        return Next() + 1;
    }

    // Each piece of emitted code calls the next one.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Next() => pieces.Dequeue()() + 1;

    /// <summary>A lambda, task { } and seq { } in functions of a module.</summary>
    public static int FSharp()
    {
        TypeBuilder module = Module("FSharp");
        TypeBuilder loop = Nested(module, "loop@16-2");
        Type a = loop.DefineGenericParameters("a")[0];
        loop.AddInterfaceImplementation(typeof(IClosure<>).MakeGenericType(a));
        Implement(loop, "Invoke", typeof(int), a, typeof(int));
        TypeBuilder work = Nested(module, "work@20-1", typeof(IAsyncStateMachine));
        TypeBuilder items = Nested(module, "items@30", typeof(ISequence));
        // What a state machine is called after may also be a function inside another.
        Static(module, "work", typeof(string));

        module.CreateType();
        var closure = (IClosure<string>)Made(loop.CreateType().MakeGenericType(typeof(string)));
        var task = (IAsyncStateMachine)Made(work.CreateType());
        var sequence = (ISequence)Made(items.CreateType());
        return Run(
            () => closure.Invoke("a", 1) + 1,
            () => { task.MoveNext(); return 1; },
            () => { IEnumerable<int> next = null; return sequence.GenerateNext(ref next) + 1; },
            Here.Block);
    }

    /// <summary>An async method, an iterator, a lambda that captures, and an async one that does not.</summary>
    public static int VisualBasic()
    {
        TypeBuilder module = Module("VisualBasic");
        TypeBuilder run = Nested(module, "VB$StateMachine_5_RunAsync", typeof(IAsyncStateMachine));
        Static(module, "RunAsync", typeof(string), typeof(int));
        TypeBuilder list = Nested(module, "VB$StateMachine_6_Items", typeof(IEnumerator));
        Static(module, "Items", typeof(int));
        TypeBuilder captures = Nested(module, "_Closure$__9-0");
        Implement(captures, "_Lambda$__1", typeof(int), typeof(int));
        TypeBuilder closure = Nested(module, "_Closure$__");
        Implement(closure, "_Lambda$__9-0", typeof(int), typeof(long));
        TypeBuilder lambda = Nested(closure, "VB$StateMachine___Lambda$__9-0", typeof(IAsyncStateMachine));

        module.CreateType();
        closure.CreateType();
        var async = (IAsyncStateMachine)Made(run.CreateType());
        var iterator = (IEnumerator)Made(list.CreateType());
        object captured = Made(captures.CreateType());
        var capturing = captured.GetType().GetMethod("_Lambda$__1").CreateDelegate<Func<int, int>>(captured);
        var asyncLambda = (IAsyncStateMachine)Made(lambda.CreateType());
        return Run(
            () => { async.MoveNext(); return 1; },
            () => iterator.MoveNext() ? 1 : 0,
            () => capturing(1) + 1,
            () => { asyncLambda.MoveNext(); return 1; },
            Here.Block);
    }

    static TypeBuilder Module(string name) => Dynamic.Module(name, AssemblyBuilderAccess.Run)
        .DefineType(name + ".Shop", TypeAttributes.Public | TypeAttributes.Abstract | TypeAttributes.Sealed);

    static TypeBuilder Nested(TypeBuilder outer, string name, params Type[] implements)
    {
        TypeBuilder type = outer.DefineNestedType(
            name, TypeAttributes.NestedAssembly | TypeAttributes.Sealed, typeof(object), implements);
        foreach (MethodInfo m in implements.SelectMany(i => i.GetMethods()))
            Implement(type, m.Name, m.ReturnType, m.GetParameters().Select(p => p.ParameterType).ToArray());
        return type;
    }

    static void Implement(TypeBuilder type, string name, Type result, params Type[] parameters) =>
        CallNext(type.DefineMethod(
            name, MethodAttributes.Public | MethodAttributes.Virtual | MethodAttributes.HideBySig, result, parameters));

    static void Static(TypeBuilder type, string name, params Type[] parameters) =>
        CallNext(type.DefineMethod(name, MethodAttributes.Public | MethodAttributes.Static, typeof(int), parameters));

    static void CallNext(MethodBuilder m)
    {
        ILGenerator il = m.GetILGenerator();
        il.EmitCall(OpCodes.Call,
            typeof(Languages).GetMethod(nameof(Next), BindingFlags.Static | BindingFlags.NonPublic), null);
        if (m.ReturnType == typeof(void) || m.ReturnType == typeof(object)) il.Emit(OpCodes.Pop);
        if (m.ReturnType == typeof(object)) il.Emit(OpCodes.Ldnull);
        il.Emit(OpCodes.Ret);
    }

    static object Made(Type type) => Activator.CreateInstance(type);
}
