// The managed half of the stand-in for `dotnet` on .NET 10: it is bundled with a
// single-file host and runs any framework-dependent application it is given.
//   run app.dll [args...]
using System;
using System.IO;
using System.Reflection;
using System.Runtime.Loader;

static class Run
{
    static int Main(string[] args)
    {
        if (args.Length == 0 || args[0] is "-h" or "--help")
        {
            Console.Error.WriteLine("usage: dotnet app.dll [args...]");
            return 129;
        }
        if (args[0] == "--version") { Console.WriteLine(Environment.Version); return 0; }
        int i = args[0] == "exec" ? 1 : 0;
        string app = Path.GetFullPath(args[i]), dir = Path.GetDirectoryName(app);
        AssemblyLoadContext.Default.Resolving += (ctx, name) =>
        {
            string p = Path.Combine(dir, name.CultureName ?? "", name.Name + ".dll");
            return File.Exists(p) ? ctx.LoadFromAssemblyPath(p) : null;
        };
        AppContext.SetData("APP_CONTEXT_BASE_DIRECTORY", dir + "/");
        Assembly a = AssemblyLoadContext.Default.LoadFromAssemblyPath(app);
        Assembly.SetEntryAssembly(a);
        MethodInfo main = a.EntryPoint;
        object r = main.Invoke(null, BindingFlags.DoNotWrapExceptions, null,
                               main.GetParameters().Length == 0 ? null : new object[] { args[(i + 1)..] }, null);
        return r is int code ? code : Environment.ExitCode;
    }
}
