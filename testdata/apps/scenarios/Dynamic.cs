// Code made at run time: dynamic methods, expressions, emitted and unloadable assemblies.
using System;
using System.Diagnostics.CodeAnalysis;
using System.IO;
using System.Linq.Expressions;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;
using Common;

namespace Scenarios;

static class Dynamic
{
    static readonly MethodInfo block = typeof(Here).GetMethod(nameof(Here.Block));

    // int name() { return Here.Block() + 1; }
    public static void EmitBlock(ILGenerator il)
    {
        il.EmitCall(OpCodes.Call, block, null);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Ret);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Method()
    {
        var m = new DynamicMethod("EmittedBlock", typeof(int), null, typeof(Dynamic).Module);
        EmitBlock(m.GetILGenerator());
        return m.CreateDelegate<Func<int>>()() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Expression()
    {
        ParameterExpression n = System.Linq.Expressions.Expression.Parameter(typeof(int), "n");
        var body = System.Linq.Expressions.Expression.Add(System.Linq.Expressions.Expression.Call(block), n);
        return System.Linq.Expressions.Expression.Lambda<Func<int, int>>(body, n).Compile()(3) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int TailTarget(int n) => Here.Block() + n;

    // int TailCaller(int n) { tail. return TailTarget(n); }: leaves no frame.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int ExplicitTailCall()
    {
        TypeBuilder type = Module("TailCalls", AssemblyBuilderAccess.Run)
            .DefineType("Emitted.Tail", TypeAttributes.Public);
        MethodBuilder m = type.DefineMethod(
            "TailCaller", MethodAttributes.Public | MethodAttributes.Static, typeof(int), [typeof(int)]);
        ILGenerator il = m.GetILGenerator();
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Tailcall);
        il.EmitCall(OpCodes.Call,
            typeof(Dynamic).GetMethod(nameof(TailTarget), BindingFlags.Static | BindingFlags.NonPublic), null);
        il.Emit(OpCodes.Ret);
        return type.CreateType().GetMethod("TailCaller").CreateDelegate<Func<int, int>>()(4) + 1;
    }

    /// <summary>A module in a new emitted assembly that may call this one's internals.</summary>
    public static ModuleBuilder Module(string name, AssemblyBuilderAccess access)
    {
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(new AssemblyName(name), access);
        // The runtime honours this attribute by its name, whoever declares it.
        ConstructorInfo ignores = typeof(IgnoresAccessChecksToAttribute).GetConstructor([typeof(string)]);
        assembly.SetCustomAttribute(new CustomAttributeBuilder(ignores, [typeof(Dynamic).Assembly.GetName().Name]));
        return assembly.DefineDynamicModule(name);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int RunAndCollect()
    {
        TypeBuilder type = Module("Collected", AssemblyBuilderAccess.RunAndCollect)
            .DefineType("Emitted.Collected", TypeAttributes.Public);
        EmitBlock(type
            .DefineMethod("BlockInCollected", MethodAttributes.Public | MethodAttributes.Static, typeof(int), null)
            .GetILGenerator());
        return type.CreateType().GetMethod("BlockInCollected").CreateDelegate<Func<int>>()() + 1;
    }

    // try { throw } fault { Here.Block() }, which C# has no words for.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Fault()
    {
        TypeBuilder type = Module("Faults", AssemblyBuilderAccess.Run)
            .DefineType("Emitted.Fault", TypeAttributes.Public);
        MethodBuilder m = type.DefineMethod(
            "TryFault", MethodAttributes.Public | MethodAttributes.Static, typeof(int), null);
        ILGenerator il = m.GetILGenerator();
        il.BeginExceptionBlock();
        il.EmitCall(OpCodes.Call, typeof(Exceptions).GetMethod(nameof(Exceptions.Throw)), null);
        il.Emit(OpCodes.Pop);
        il.BeginFaultBlock();
        il.EmitCall(OpCodes.Call, block, null);
        il.Emit(OpCodes.Pop);
        il.EndExceptionBlock();
        il.Emit(OpCodes.Ldc_I4_0);
        il.Emit(OpCodes.Ret);
        var f = type.CreateType().GetMethod("TryFault").CreateDelegate<Func<int>>();
        try { return f() + 1; } catch (InvalidOperationException) { return 0; }
    }

    // This assembly once more, in a context that can be unloaded.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int CollectibleContext() => LoadPlugin(out _)(Here.Block) + 1;

    [DynamicDependency(DynamicallyAccessedMemberTypes.PublicMethods, typeof(Plugin))] // it is not trimmed
    public static Func<Func<int>, int> LoadPlugin(out AssemblyLoadContext context)
    {
        context = new AssemblyLoadContext("plugin", isCollectible: true);
        using Stream image = File.OpenRead(App.Text("assembly", typeof(Dynamic).Assembly.Location));
        Type plugin = context.LoadFromStream(image).GetType(typeof(Plugin).FullName);
        return plugin.GetMethod(nameof(Plugin.Run)).CreateDelegate<Func<Func<int>, int>>();
    }
}

/// <summary>Runs in a collectible context.</summary>
public static class Plugin
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Run(Func<int> callBack) => Inner(callBack, 2) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Inner(Func<int> callBack, int depth) => depth == 0 ? callBack() + 1 : Inner(callBack, depth - 1) + 1;
}
