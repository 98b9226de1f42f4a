// One stack through many assemblies: copies of this one, each in a file of its own with its PDB beside it.
//
//   --count N    copies
//   --folder DIR where to put them
using System;
using System.IO;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Runtime.Loader;
using System.Threading;
using Common;

namespace Assemblies;

static class Program
{
    static readonly ManualResetEvent never = new(false);

    static void Main(string[] args)
    {
        App.Start(args);
        int count = App.Int("count", 100);
        Func<int> next = Block;
        for (int i = 0; i < count; i++) next = Copy(i, next);
        App.Background("chain", () => next(), 64 << 20);
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Block()
    {
        App.Line("READY");
        never.WaitOne();
        return 1;
    }

    // A method of a new copy that calls next.
    static Func<int> Copy(int i, Func<int> next)
    {
        string from = typeof(Program).Assembly.Location;
        string to = Path.Combine(App.Text("folder", ""), i.ToString());
        Directory.CreateDirectory(to);
        foreach (string extension in new[] { ".dll", ".pdb" })
        {
            string copy = Path.Combine(to, "assemblies" + extension);
            if (link(Path.ChangeExtension(from, extension), copy) != 0)
                File.Copy(Path.ChangeExtension(from, extension), copy);
        }
        var context = new AssemblyLoadContext("copy " + i);
        Type type = context.LoadFromAssemblyPath(Path.Combine(to, "assemblies.dll")).GetType("Assemblies.Link");
        return type.GetMethod("Make").CreateDelegate<Func<Func<int>, Func<int>>>()(next);
    }

    [DllImport("libc", SetLastError = true)] static extern int link(string from, string to);
}

/// <summary>Runs in a copy.</summary>
public sealed class Link(Func<int> next)
{
    public static Func<int> Make(Func<int> next) => new Link(next).Call;

    [MethodImpl(MethodImplOptions.NoInlining)]
    int Call()
    {
        int n = 1;
        n += next(); // of the next copy
        return n;
    }
}
