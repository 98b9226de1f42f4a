// Code that native code calls, reflection, code made at run time, and the finalizer.
using System;
using System.Linq.Expressions;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Lines;

static unsafe class Outside
{
    public static readonly Place[] Places =
    [
        new("unmanaged-only", UnmanagedCallersOnly),
        new("marshalled", MarshalledDelegate),
        new("reflection", ByReflection),
        new("reflection-2", ByReflectionOften),
        new("activator", ByActivator),
        new("dynamic", ByDynamic),
        new("expression", ByExpression),
        new("dynamic-method", ByDynamicMethod),
        new("emitted", ByEmitted),
        new("finalizer", Finalized, Elsewhere: true),
        new("delegate-dynamic", DynamicInvoke),
        new("run-initializer", Initializer, Once: true),
    ];

    [DllImport("libc")]
    static extern void qsort(int* values, nuint count, nuint size, delegate* unmanaged[Cdecl]<int*, int*, int> compare);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    delegate int Compare(int* a, int* b);

    [DllImport("libc", EntryPoint = "qsort")]
    static extern void qsortDelegate(int* values, nuint count, nuint size, Compare compare);

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static int CompareInts(int* a, int* b)
    {
        int n = Here.Stop(); // @unmanaged-only
        return n + *a - *b;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int UnmanagedCallersOnly()
    {
        int* all = stackalloc int[2];
        all[0] = 2;
        qsort(all, 2, 4, &CompareInts); // @unmanaged-only
        return all[0];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int MarshalledDelegate()
    {
        int* all = stackalloc int[2];
        all[0] = 2;
        Compare compare = (a, b) =>
            Here.Stop() + *a - *b; // @marshalled
        qsortDelegate(all, 2, 4, compare); // @marshalled
        GC.KeepAlive(compare);
        return all[0];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Target(int n) => Here.Stop() + n; // @reflection @reflection-2 @delegate-dynamic @expression @dynamic

    static readonly MethodInfo target = typeof(Outside).GetMethod(nameof(Target), BindingFlags.Static | BindingFlags.NonPublic);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByReflection()
    {
        object n = target.Invoke(null, [2]); // @reflection
        return (int)n;
    }

    // From the second time on there is a stub for the call.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByReflectionOften()
    {
        MethodInfo m = typeof(Outside).GetMethod(nameof(Sometimes), BindingFlags.Static | BindingFlags.NonPublic);
        int sum = 0;
        for (int i = 0; i < 10; i++)
        {
            sum += (int)m.Invoke(null, [i]); // @reflection-2
        }
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Sometimes(int i) => i < 9 ? i : Target(i) + 1; // @reflection-2

    sealed class Made
    {
        public readonly int Value;

        public Made()
        {
            Value = Here.Stop(); // @activator
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByActivator()
    {
        var m = Activator.CreateInstance<Made>(); // @activator
        return m.Value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByDynamic()
    {
        Func<int, int> f = Target;
        object n = f.Method.Invoke(f.Target, [3]); // @dynamic
        return (int)n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByExpression()
    {
        Expression<Func<int, int>> e = n => Target(n) + 1;
        return e.Compile()(2) + 1; // @expression
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Public(int n) => Here.Stop() + n; // @dynamic-method @emitted

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByDynamicMethod()
    {
        var m = new DynamicMethod("Made", typeof(int), [typeof(int)], typeof(Outside).Module);
        EmitCall(m.GetILGenerator());
        return m.CreateDelegate<Func<int, int>>()(2) + 1; // @dynamic-method
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByEmitted()
    {
        AssemblyBuilder assembly = AssemblyBuilder.DefineDynamicAssembly(new("Emitted"), AssemblyBuilderAccess.Run);
        ConstructorInfo ignores = typeof(IgnoresAccessChecksToAttribute).GetConstructor([typeof(string)]);
        assembly.SetCustomAttribute(new CustomAttributeBuilder(ignores, [typeof(Outside).Assembly.GetName().Name]));
        TypeBuilder type = assembly.DefineDynamicModule("Emitted").DefineType("Emitted.Type", TypeAttributes.Public);
        EmitCall(type.DefineMethod("Call", MethodAttributes.Public | MethodAttributes.Static, typeof(int), [typeof(int)])
            .GetILGenerator());
        return type.CreateType().GetMethod("Call").CreateDelegate<Func<int, int>>()(2) + 1; // @emitted
    }

    static void EmitCall(ILGenerator il)
    {
        il.Emit(OpCodes.Ldarg_0);
        il.EmitCall(OpCodes.Call, typeof(Outside).GetMethod(nameof(Public)), null);
        il.Emit(OpCodes.Ldc_I4_1);
        il.Emit(OpCodes.Add);
        il.Emit(OpCodes.Ret);
    }

    sealed class Unreachable
    {
        ~Unreachable()
        {
            Here.Stop("finalizer"); // @finalizer
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Forget() => _ = new Unreachable();

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Finalized()
    {
        Forget();
        GC.Collect();
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int DynamicInvoke()
    {
        Delegate f = (Func<int, int>)Target;
        object n = f.DynamicInvoke(2); // @delegate-dynamic
        return (int)n;
    }

    static class Late
    {
        public static readonly int Value = Compute(); // @run-initializer

        [MethodImpl(MethodImplOptions.NoInlining)]
        static int Compute()
        {
            int n = 2;
            return Here.Stop() + n; // @run-initializer
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Initializer()
    {
        RuntimeHelpers.RunClassConstructor(typeof(Late).TypeHandle); // @run-initializer
        return Late.Value;
    }
}
