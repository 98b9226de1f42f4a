// What generic frames are: the program says it itself, by typeof.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Generics;

/// <summary>Keeps what the generic frames of each thread are, and blocks.</summary>
static class Say
{
    [ThreadStatic] static List<string> frames;
    static readonly ConcurrentDictionary<string, string> places = new();
    static readonly ManualResetEvent never = new(false);

    /// <summary>Says that the next generic frame is of this method, as C# would write it.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void In(string frame) => (frames ??= new()).Add(frame);

    /// <summary>The generic method whose lambdas this thread runs.</summary>
    [ThreadStatic] public static string Outermost;

    /// <summary>Blocks, after the frames of this thread have been noted.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Block()
    {
        var said = (frames ??= new()).ToArray();
        Array.Reverse(said);
        places[$"{Thread.CurrentThread.Name}|{gettid()}|{Outermost}"] = string.Join('|', said);
        never.WaitOne();
        return 1;
    }

    /// <summary>One line for each place, as Program.cs says.</summary>
    public static IEnumerable<string> Lines => places.Select(p => $"{p.Key}|{p.Value}");

    public static int Blocked => places.Count;

    /// <summary>The name of typeof(T).</summary>
    public static string N<T>() => Name(typeof(T));

    /// <summary>A type as C# writes it, with namespaces and + for nested types.</summary>
    public static string Name(Type t)
    {
        if (t.IsArray) return Name(t.GetElementType()) + "[" + new string(',', t.GetArrayRank() - 1) + "]";
        if (t == typeof(int)) return "int";
        if (t == typeof(long)) return "long";
        if (t == typeof(double)) return "double";
        if (t == typeof(string)) return "string";
        if (t == typeof(object)) return "object";
        Type[] args = t.GetGenericArguments();
        if (args.Length == 0) return t.FullName;
        string name = "";
        int used = 0;
        foreach (string part in t.GetGenericTypeDefinition().FullName.Split('+'))
        {
            name += name == "" ? "" : "+";
            int tick = part.IndexOf('`');
            if (tick < 0)
            {
                name += part;
                continue;
            }
            int arity = int.Parse(part[(tick + 1)..]);
            name += part[..tick] + "<" + string.Join(", ", args.Skip(used).Take(arity).Select(Name)) + ">";
            used += arity;
        }
        return name;
    }

    [DllImport("libc")] static extern int gettid();
}
