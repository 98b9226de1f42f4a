// Storm workers whose code is unloaded after milliseconds. Every generation has
// names of its own: a name that outlives its code is seen to be wrong once other code
// has its address.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq.Expressions;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.Loader;
using System.Text;
using System.Threading;

namespace Scenarios;

static class StormCode
{
    const int LifeMs = 6;
    static int generations;

    static string NextName(string prefix) => $"{prefix}{Interlocked.Increment(ref generations) % 1_000_000:D6}";

    /// <summary>Milliseconds since some time: what generations measure their life with.</summary>
    public static long Now() => Environment.TickCount64;

    /// <summary>This assembly in a collectible context, the type Gen000000 in it renamed.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long InContext()
    {
        long right = RunInContext(NextName("Gen"));
        Counts.NoteUnloaded();
        return right;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long RunInContext(string name)
    {
        var context = new AssemblyLoadContext(name, isCollectible: true);
        Assembly assembly = context.LoadFromStream(new MemoryStream(Renamed(name)));
        var run = assembly.GetType("Scenarios." + name)
            .GetMethod(nameof(Gen000000.Run)).CreateDelegate<Func<int, long>>();
        long right = run(LifeMs);
        Counts.WillUnload(context);
        context.Unload();
        return right;
    }

    static readonly byte[] image = File.ReadAllBytes(typeof(StormCode).Assembly.Location);
    static readonly int[] places = Places(Encoding.UTF8.GetBytes(nameof(Gen000000) + "\0"));

    // Names in metadata end with a zero; the name occurs there once.
    static int[] Places(byte[] name)
    {
        var all = new List<int>();
        for (int at = 0; ; at += name.Length)
        {
            int next = image.AsSpan(at).IndexOf(name);
            if (next < 0) return all.ToArray();
            all.Add(at += next);
        }
    }

    static byte[] Renamed(string name)
    {
        if (places.Length != 1) throw new InvalidDataException($"{places.Length} types to rename");
        var copy = (byte[])image.Clone();
        Encoding.UTF8.GetBytes(name, copy.AsSpan(places[0]));
        return copy;
    }

    static readonly MethodInfo now = typeof(StormCode).GetMethod(nameof(Now));
    static readonly MethodInfo carry = typeof(StormCode).GetMethod(nameof(Carry));

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Carry() => throw new InvalidOperationException("from code that will be unloaded");

    // long name(int ms) { long end = Now() + ms; long n = 0; do n++ while (Now() < end); return n; }
    static void EmitSpin(ILGenerator il)
    {
        LocalBuilder end = il.DeclareLocal(typeof(long)), n = il.DeclareLocal(typeof(long));
        il.EmitCall(OpCodes.Call, now, null);
        il.Emit(OpCodes.Ldarg_0);
        il.Emit(OpCodes.Conv_I8);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Stloc, end);
        Label again = il.DefineLabel();
        il.MarkLabel(again);
        il.Emit(OpCodes.Ldloc, n);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Conv_I8);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Stloc, n);
        il.EmitCall(OpCodes.Call, now, null);
        il.Emit(OpCodes.Ldloc, end);
        il.Emit(OpCodes.Blt, again);
        il.Emit(OpCodes.Ldloc, n);
        il.Emit(OpCodes.Ret);
    }

    /// <summary>An assembly that is emitted, run and collected, with a fault block.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Emitted()
    {
        long right = RunEmitted(NextName("Emit"));
        Counts.NoteUnloaded();
        return right;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long RunEmitted(string name)
    {
        TypeBuilder type = Dynamic.Module(name, AssemblyBuilderAccess.RunAndCollect)
            .DefineType("Emitted." + name, TypeAttributes.Public);
        MethodBuilder spin = Define(type, "Spin");
        EmitSpin(spin.GetILGenerator());
        ILGenerator il = Define(type, "Fault").GetILGenerator();
        il.BeginExceptionBlock();
        il.EmitCall(OpCodes.Call, carry, null);
        il.BeginFaultBlock();
        il.Emit(OpCodes.Ldarg_0);
        il.EmitCall(OpCodes.Call, spin, null);
        il.Emit(OpCodes.Pop);
        il.EndExceptionBlock();
        il.Emit(OpCodes.Ldc_I4_0);
        il.Emit(OpCodes.Conv_I8);
        il.Emit(OpCodes.Ret);
        Type made = type.CreateType();
        Counts.WillUnload(made.Assembly);
        long right = made.GetMethod("Spin").CreateDelegate<Func<int, long>>()(LifeMs / 2) > 0 ? 1 : 0;
        try { made.GetMethod("Fault").CreateDelegate<Func<int, long>>()(LifeMs / 2); }
        catch (InvalidOperationException) { right++; }
        return right;
    }

    static MethodBuilder Define(TypeBuilder type, string name) =>
        type.DefineMethod(name, MethodAttributes.Public | MethodAttributes.Static, typeof(long), [typeof(int)]);

    /// <summary>Dynamic methods: their place is used again as soon as they are finalized.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long DynamicMethods()
    {
        long right = 0;
        for (int i = 0; i < 4; i++)
        {
            var m = new DynamicMethod(NextName("Dyn"), typeof(long), [typeof(int)], typeof(StormCode).Module);
            EmitSpin(m.GetILGenerator());
            right += m.CreateDelegate<Func<int, long>>()(LifeMs / 3) > 0 ? 1 : 0;
        }
        Interlocked.Add(ref Counts.DynamicMethods, 4);
        return right;
    }

    /// <summary>Expressions: dynamic methods that are closed over an object.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Expressions()
    {
        ParameterExpression ms = Expression.Parameter(typeof(int), "ms");
        Expression spin = Expression.Call(typeof(StormCode).GetMethod(nameof(Spin)), ms);
        Expression caught = Expression.TryCatch(
            Expression.Block(Expression.Call(carry), Expression.Constant(0L)),
            Expression.Catch(typeof(InvalidOperationException), spin));
        var f = Expression.Lambda<Func<int, long>>(Expression.Add(spin, caught), NextName("Expr"), [ms]).Compile();
        Interlocked.Increment(ref Counts.DynamicMethods);
        return f(LifeMs / 2);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Spin(int ms)
    {
        for (long end = Now() + ms; Now() < end;) { }
        return 1;
    }
}

/// <summary>
/// One generation of unloadable code; uses nothing of this assembly, of which its context has a copy.
/// </summary>
public static class Gen000000
{
    static readonly long began = Construct();
    static readonly Func<long, int, long> indirect = Recurse;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Construct() => Environment.TickCount64;

    /// <summary>Spins for ms milliseconds in different ways; returns 3.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static long Run(int ms)
    {
        long right = began > 0 ? 1 : 0;
        right += indirect(Environment.TickCount64 + ms / 2, 3);
        return right + Generic<string>(Environment.TickCount64 + ms / 2);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Recurse(long end, int depth)
    {
        if (depth > 0) return Recurse(end, depth - 1);
        long n = 0;
        while (Environment.TickCount64 < end) n++;
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static long Generic<T>(long end)
    {
        try { Fail(typeof(T).Name); return 0; }
        catch (InvalidOperationException e) when (Filter(e, end)) { return Recurse(end, 1); }
        finally { GC.KeepAlive(new List<T>()); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Filter(Exception e, long end) => e.Message.Length == 6 && end > 0;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Fail(string message) => throw new InvalidOperationException(message);
}
