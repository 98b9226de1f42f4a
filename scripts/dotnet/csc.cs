// A small C# compiler driver over the Roslyn libraries. It takes the ordinary
// csc command line (the parsing is Roslyn's own), plus:
//
//   --fw:DIR     take the framework assemblies to compile against from DIR
//                (repeatable; default: the runtime this driver runs on)
//   --tfm:netX.Y target framework written into the output (default: by DIR's version)
//   --rtc        write <out>.runtimeconfig.json beside an executable
//   --aspnet     ... naming Microsoft.AspNetCore.App too
//   --time       print how long each step took
//   --           next compilation: several programs in one process, which saves
//                the second or so that the JIT spends on Roslyn itself
//
// Defaults: -target:exe -debug:portable -langversion:latest -nullable:disable -unsafe+
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection.PortableExecutable;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.CodeAnalysis;
using Microsoft.CodeAnalysis.CSharp;
using Microsoft.CodeAnalysis.Emit;
using Microsoft.CodeAnalysis.Text;

static class Csc
{
    static int Main(string[] argv)
    {
        int rc = 0;
        foreach (List<string> one in Split(argv))
            rc |= Compile(one);
        return rc;
    }

    static IEnumerable<List<string>> Split(string[] argv)
    {
        var cur = new List<string>();
        foreach (string a in argv)
        {
            if (a == "--") { yield return cur; cur = new List<string>(); }
            else cur.Add(a);
        }
        if (cur.Count > 0) yield return cur;
    }

    static readonly Dictionary<string, MetadataReference> cache = new();

    // Every managed assembly of a framework directory (native ones are skipped).
    static IEnumerable<string> FrameworkAssemblies(string dir) =>
        Directory.GetFiles(dir, "*.dll").Where(IsManaged).OrderBy(x => x, StringComparer.Ordinal);

    static bool IsManaged(string path)
    {
        try
        {
            using var s = File.OpenRead(path);
            using var pe = new PEReader(s);
            return pe.HasMetadata;
        }
        catch { return false; }
    }

    static MetadataReference Reference(string path)
    {
        if (!cache.TryGetValue(path, out var r))
            cache[path] = r = MetadataReference.CreateFromFile(path);
        return r;
    }

    // The text of a source file, or of another file, for the PDB.
    static EmbeddedText Embedded(string path, SyntaxTree[] trees)
    {
        SyntaxTree tree = trees.FirstOrDefault(t => t.FilePath == path);
        if (tree != null) return EmbeddedText.FromSource(path, tree.GetText());
        using var s = File.OpenRead(path);
        return EmbeddedText.FromStream(path, s);
    }

    static int Compile(List<string> argv)
    {
        var clock = Stopwatch.StartNew();
        bool rtc = false, aspnet = false, time = false;
        string tfm = null;
        var fw = new List<string>();
        var rest = new List<string>
        {
            "-noconfig", "-nostdlib+", "-unsafe+", "-langversion:latest", "-debug:portable", "-nologo",
            "-nowarn:CS1701,CS1702,CS8632",
        };
        foreach (string a in argv)
        {
            if (a.StartsWith("--fw:")) fw.Add(Path.GetFullPath(a.Substring(5)));
            else if (a.StartsWith("--tfm:")) tfm = a.Substring(6);
            else if (a == "--rtc") rtc = true;
            else if (a == "--aspnet") aspnet = true;
            else if (a == "--time") time = true;
            else rest.Add(a);
        }

        if (fw.Count == 0)
        {
            string d = Environment.GetEnvironmentVariable("CSC_FRAMEWORK");
            if (string.IsNullOrEmpty(d)) d = Path.GetDirectoryName(typeof(object).Assembly.Location);
            if (string.IsNullOrEmpty(d))
            {
                Console.Error.WriteLine("csc: no framework directory; give --fw:DIR");
                return 2;
            }
            fw.Add(d);
        }
        if (tfm == null)
        {
            // CoreLib's own version names the framework: 9.0.0.0 -> net9.0
            string core = Path.Combine(fw[0], "System.Private.CoreLib.dll");
            Version v = File.Exists(core)
                ? System.Reflection.AssemblyName.GetAssemblyName(core).Version
                : Environment.Version;
            tfm = $"net{v.Major}.{v.Minor}";
        }

        CSharpCommandLineArguments args =
            CSharpCommandLineParser.Default.Parse(rest, Directory.GetCurrentDirectory(), fw[0]);
        bool bad = false;
        foreach (Diagnostic d in args.Errors) { Console.WriteLine(d); bad |= d.Severity == DiagnosticSeverity.Error; }
        if (bad) return 1;

        var seen = new HashSet<string>(StringComparer.OrdinalIgnoreCase);
        var refs = new List<MetadataReference>();
        foreach (CommandLineReference r in args.MetadataReferences)
        {
            string p = r.Reference;
            if (!File.Exists(p)) p = fw.Select(d => Path.Combine(d, r.Reference)).FirstOrDefault(File.Exists) ?? p;
            if (!File.Exists(p))
            {
                Console.WriteLine($"error CS0006: Metadata file '{r.Reference}' could not be found");
                return 1;
            }
            seen.Add(Path.GetFileName(p));
            refs.Add(MetadataReference.CreateFromFile(p, r.Properties));
        }
        foreach (string p in fw.SelectMany(FrameworkAssemblies))
            if (seen.Add(Path.GetFileName(p))) refs.Add(Reference(p));
        long tRefs = clock.ElapsedMilliseconds;

        // NET, NETCOREAPP, NET9_0, NET5_0_OR_GREATER ... as the SDK would define them.
        string ver = tfm.Substring(3);
        var symbols = new List<string>(args.ParseOptions.PreprocessorSymbolNames)
        {
            "NET", "NETCOREAPP", "NET" + ver.Replace('.', '_'),
        };
        for (int i = 5; i <= int.Parse(ver.Split('.')[0]); i++) symbols.Add($"NET{i}_0_OR_GREATER");
        CSharpParseOptions parseOptions = args.ParseOptions.WithPreprocessorSymbols(symbols);

        var trees = new SyntaxTree[args.SourceFiles.Length];
        Parallel.For(0, trees.Length, i =>
        {
            string path = args.SourceFiles[i].Path;
            using var s = File.OpenRead(path);
            var text = SourceText.From(s, args.Encoding ?? Encoding.UTF8, args.ChecksumAlgorithm, canBeEmbedded: true);
            trees[i] = CSharpSyntaxTree.ParseText(text, parseOptions, path);
        });
        string attribute = $"[assembly: System.Runtime.Versioning.TargetFramework("
            + $"\".NETCoreApp,Version=v{ver}\", FrameworkDisplayName = \".NET {ver}\")]\n";
        SyntaxTree attrs = CSharpSyntaxTree.ParseText(
            SourceText.From(attribute, Encoding.UTF8), parseOptions, "TargetFramework.g.cs");

        string outName = args.OutputFileName ?? Path.GetFileNameWithoutExtension(args.SourceFiles[0].Path) + ".dll";
        string outPath = Path.Combine(args.OutputDirectory, outName);
        CSharpCompilation comp = CSharpCompilation.Create(
            Path.GetFileNameWithoutExtension(outName), trees.Append(attrs), refs,
            args.CompilationOptions.WithSourceReferenceResolver(
                new SourceFileResolver([], args.BaseDirectory, args.PathMap)));
        if (comp.Options.OutputKind == OutputKind.ConsoleApplication
            && args.CompilationOptions.Platform == Platform.AnyCpu32BitPreferred)
            comp = comp.WithOptions(comp.Options.WithPlatform(Platform.AnyCpu));
        long tParse = clock.ElapsedMilliseconds;

        bool embedded = args.EmitOptions.DebugInformationFormat == DebugInformationFormat.Embedded;
        string pdbPath = args.EmitPdb && !embedded ? args.PdbPath ?? Path.ChangeExtension(outPath, ".pdb") : null;
        EmitResult result;
        using (var pe = new MemoryStream())
        using (var pdb = pdbPath != null ? new MemoryStream() : null)
        {
            result = comp.Emit(pe, pdb, options: args.EmitOptions.WithPdbFilePath(Path.GetFileName(pdbPath)),
                embeddedTexts: args.EmitPdb ? args.EmbeddedFiles.Select(f => Embedded(f.Path, trees)).ToArray() : null);
            if (result.Success)
            {
                Directory.CreateDirectory(Path.GetDirectoryName(Path.GetFullPath(outPath)));
                File.WriteAllBytes(outPath, pe.ToArray());
                if (pdb != null) File.WriteAllBytes(pdbPath, pdb.ToArray());
            }
        }
        foreach (Diagnostic d in result.Diagnostics)
            if (d.Severity == DiagnosticSeverity.Error || d.Severity == DiagnosticSeverity.Warning && !d.IsSuppressed)
                Console.WriteLine(d);
        if (result.Success && rtc && comp.Options.OutputKind == OutputKind.ConsoleApplication)
        {
            string name = aspnet ? "Microsoft.AspNetCore.App" : "Microsoft.NETCore.App";
            File.WriteAllText(Path.ChangeExtension(outPath, ".runtimeconfig.json"),
                "{\n  \"runtimeOptions\": {\n    \"tfm\": \"" + tfm + "\",\n"
                + "    \"framework\": { \"name\": \"" + name + "\", \"version\": \"" + ver + ".0\" }\n  }\n}\n");
        }
        if (time)
        {
            long tEmit = clock.ElapsedMilliseconds;
            Console.Error.WriteLine($"{outName}: {refs.Count} refs {tRefs} ms, parse {tParse - tRefs} ms, "
                + $"bind+emit {tEmit - tParse} ms, total {tEmit} ms");
        }
        return result.Success ? 0 : 1;
    }
}
