// Stage 0 of the compiler bootstrap. Built with mono's mcs (C# 6-ish, no
// reference to Roslyn: everything goes through reflection), it runs on .NET and
// does one thing: compile a single C# file with the Roslyn DLLs.
//   dotnet stage0.dll <roslyn dir> <framework dir> <source.cs> <out.dll>
using System;
using System.Collections;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;

static class Stage0
{
    static string dir;

    static Assembly Load(string name)
    {
        return Assembly.LoadFrom(Path.Combine(dir, name + ".dll"));
    }

    // Calls a static or instance method by name, filling the trailing optional
    // parameters with their defaults.
    static object Call(Type t, object self, string name, Func<ParameterInfo[], bool> pick, params object[] args)
    {
        MethodInfo m = t.GetMethods().First(x => x.Name == name && pick(x.GetParameters()));
        ParameterInfo[] ps = m.GetParameters();
        object[] full = new object[ps.Length];
        for (int i = 0; i < ps.Length; i++)
            full[i] = i < args.Length ? args[i]
                    : ps[i].DefaultValue != null && ps[i].DefaultValue != DBNull.Value ? ps[i].DefaultValue
                    : ps[i].ParameterType.IsValueType ? Activator.CreateInstance(ps[i].ParameterType) : null;
        return m.Invoke(self, full);
    }

    static IList ListOf(Type t) { return (IList)Activator.CreateInstance(typeof(List<>).MakeGenericType(t)); }

    static int Main(string[] a)
    {
        dir = Path.GetFullPath(a[0]);
        AppDomain.CurrentDomain.AssemblyResolve += (s, e) =>
        {
            string p = Path.Combine(dir, new AssemblyName(e.Name).Name + ".dll");
            return File.Exists(p) ? Assembly.LoadFrom(p) : null;
        };
        Assembly core = Load("Microsoft.CodeAnalysis"), cs = Load("Microsoft.CodeAnalysis.CSharp");
        Type reference = core.GetType("Microsoft.CodeAnalysis.MetadataReference");
        Type tree = core.GetType("Microsoft.CodeAnalysis.SyntaxTree");
        Type options = cs.GetType("Microsoft.CodeAnalysis.CSharp.CSharpCompilationOptions");
        Type kind = core.GetType("Microsoft.CodeAnalysis.OutputKind");

        IList refs = ListOf(reference);
        string[] framework = Directory.GetFiles(a[1], "*.dll");
        foreach (string dll in framework.Concat(Directory.GetFiles(dir, "Microsoft.CodeAnalysis*.dll")))
            refs.Add(Call(reference, null, "CreateFromFile",
                          p => p.Length > 0 && p[0].ParameterType == typeof(string), dll));
        IList trees = ListOf(tree);
        trees.Add(Call(cs.GetType("Microsoft.CodeAnalysis.CSharp.CSharpSyntaxTree"), null, "ParseText",
                       p => p[0].ParameterType == typeof(string) && p.Length > 2 && p.Any(q => q.Name == "path")
                           && p.Last().Name == "cancellationToken" && !p.Any(q => q.Name == "diagnosticOptions"),
                       File.ReadAllText(a[2])));

        ConstructorInfo c = options.GetConstructors().OrderByDescending(x => x.GetParameters().Length).First();
        object[] ca = c.GetParameters().Select(p =>
            p.ParameterType == kind ? Enum.Parse(kind, "ConsoleApplication")
            : p.Name == "allowUnsafe" ? true
            : p.DefaultValue != null && p.DefaultValue != DBNull.Value
                ? (p.ParameterType.IsEnum ? Enum.ToObject(p.ParameterType, p.DefaultValue) : p.DefaultValue)
            : p.ParameterType.IsValueType ? Activator.CreateInstance(p.ParameterType) : null).ToArray();

        object comp = Call(cs.GetType("Microsoft.CodeAnalysis.CSharp.CSharpCompilation"), null, "Create",
                           p => p.Length == 4, Path.GetFileNameWithoutExtension(a[3]), trees, refs, c.Invoke(ca));
        using (FileStream o = File.Create(a[3]))
        {
            object result = Call(comp.GetType().BaseType, comp, "Emit",
                p => p[0].ParameterType == typeof(Stream) && p.Any(q => q.Name == "debugEntryPoint") == false, o);
            foreach (object d in (IEnumerable)result.GetType().GetProperty("Diagnostics").GetValue(result))
                if (d.ToString().Contains("error ")) Console.WriteLine(d);
            return (bool)result.GetType().GetProperty("Success").GetValue(result) ? 0 : 1;
        }
    }
}
