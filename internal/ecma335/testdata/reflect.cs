// Prints what reflection says about assemblies, one tab-separated line per
// assembly (A), type (T) and method (M), for the tests to compare with.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;

foreach (var path in args) Dump.Assembly(path, path == "self" ? typeof(Dump).Assembly
    : Path.GetFileName(path) == "System.Private.CoreLib.dll" ? typeof(object).Assembly : Assembly.LoadFrom(path));

static class Dump
{
    const BindingFlags All = BindingFlags.DeclaredOnly | BindingFlags.Instance | BindingFlags.Static
        | BindingFlags.Public | BindingFlags.NonPublic;

    public static void Assembly(string path, Assembly a)
    {
        Line("A", path, a.GetName().Name, a.ManifestModule.ScopeName,
            Convert.ToHexString(a.ManifestModule.ModuleVersionId.ToByteArray()));
        foreach (var t in a.GetTypes())
        {
            Line("T", Rid(t), t.FullName.Replace("\\", ""), Names(t.GetGenericArguments()));
            foreach (var f in t.GetFields(All)) Line("F", Rid(f), Rid(t), f.Name);
            foreach (var m in t.GetMembers(All).OfType<MethodBase>())
                Line("M", Rid(m), Rid(t), m.Name, m.IsStatic, string.Join(",", m.GetParameters().Select(p => p.Name)),
                    m.IsGenericMethod ? Names(m.GetGenericArguments()) : "",
                    string.Join(", ", m.GetParameters().Select(p => Text(p.ParameterType))), Import(m));
        }
    }

    static void Line(params object[] fields) => Console.WriteLine(string.Join("\t", fields));
    static string Import(MethodBase m) => m.Attributes.HasFlag(MethodAttributes.PinvokeImpl)
        && m.GetCustomAttribute<DllImportAttribute>() is { } i ? i.EntryPoint + " in " + i.Value : "";
    static int Rid(MemberInfo m) => m.MetadataToken & 0xffffff;
    static string Names(Type[] ts) => string.Join(",", ts.Select(t => t.Name));

    static readonly Dictionary<string, string> Keywords = new()
    {
        ["Void"] = "void", ["Boolean"] = "bool", ["Char"] = "char", ["SByte"] = "sbyte", ["Byte"] = "byte",
        ["Int16"] = "short", ["UInt16"] = "ushort", ["Int32"] = "int", ["UInt32"] = "uint", ["Int64"] = "long",
        ["UInt64"] = "ulong", ["Single"] = "float", ["Double"] = "double", ["Decimal"] = "decimal",
        ["String"] = "string", ["Object"] = "object", ["IntPtr"] = "nint", ["UIntPtr"] = "nuint",
    };

    static string Text(Type t)
    {
        if (t.IsByRef) return "ref " + Text(t.GetElementType());
        if (t.IsPointer) return Text(t.GetElementType()) + "*";
        if (t.IsFunctionPointer) return "delegate*" + (t.IsUnmanagedFunctionPointer ? " unmanaged" : "")
            + "<" + string.Join(", ",
                t.GetFunctionPointerParameterTypes().Append(t.GetFunctionPointerReturnType()).Select(Text)) + ">";
        if (t.IsArray)
        {
            var ranks = "";
            for (; t.IsArray; t = t.GetElementType())
                ranks += t.IsSZArray ? "[]" : "[" + new string(',', t.GetArrayRank() - 1) + "]";
            return Text(t) + ranks;
        }
        if (t.IsGenericMethodParameter) return "!!" + t.GenericParameterPosition;
        if (t.IsGenericTypeParameter) return "!" + t.GenericParameterPosition;
        if (t == typeof(TypedReference)) return "TypedReference";
        return Named(t);
    }

    static string Named(Type t)
    {
        var args = t.GetGenericArguments().Select(Text).ToList();
        if (t.Namespace == "System" && !t.IsNested)
        {
            if (Keywords.TryGetValue(t.Name, out var k)) return k;
            if (t.Name == "Nullable`1") return args[0] + "?";
            if (t.Name == "ValueTuple`8")
            {
                var rest = t.GetGenericArguments()[7];
                if (rest.Name.StartsWith("ValueTuple`"))
                    return "(" + string.Join(", ", args.Take(7)) + ", " + (rest.Name == "ValueTuple`1"
                        ? Text(rest.GetGenericArguments()[0]) + ")" : Text(rest)[1..]);
            }
            if (t.Name.StartsWith("ValueTuple`") && args.Count is > 1 and < 8)
                return "(" + string.Join(", ", args) + ")";
        }
        var names = new List<string>();
        for (var u = t; u != null; u = u.DeclaringType) names.Insert(0, u.Name);
        for (int i = 0; i < names.Count; i++)
        {
            var p = names[i].LastIndexOf('`');
            if (p < 0 || !int.TryParse(names[i][(p + 1)..], out var n)) continue;
            names[i] = names[i][..p] + "<" + string.Join(", ", args.Take(n)) + ">";
            args = args.Skip(n).ToList();
        }
        return (string.IsNullOrEmpty(t.Namespace) ? "" : t.Namespace + ".") + string.Join("+", names);
    }
}

namespace Shapes
{
    class Plain { static void Va(__arglist) { } }

    public class Outer<T>
    {
        public class In<W>
        {
            public struct Leaf
            {
                public unsafe void M(int?[] a, (int, string) b, List<Dictionary<T, W>>[,] c, ref int* d,
                    delegate*<int, void> e, in decimal f, T[][,] h, nint i, TypedReference j,
                    delegate* unmanaged<byte, char*> k, Outer<int>.In<W>.Leaf l) { }
                public void Gen<U, V>(U u, V[] v, Func<U, T> f) { }
            }
        }
    }
}
