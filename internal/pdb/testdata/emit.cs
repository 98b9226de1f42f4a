// emit FRAMEWORK OUT.dll embedded|portable SOURCELINK.json SOURCE...: compiles with Source Link and with
// the sources in the PDB, which the kit's compiler driver cannot.
using System;
using System.IO;
using System.Linq;
using Microsoft.CodeAnalysis;
using Microsoft.CodeAnalysis.CSharp;
using Microsoft.CodeAnalysis.Emit;
using Microsoft.CodeAnalysis.Text;

var files = args.Skip(4).ToArray();
var texts = files.Select(f => SourceText.From(File.ReadAllText(f), new System.Text.UTF8Encoding(false))).ToArray();
var trees = files.Select((f, i) => CSharpSyntaxTree.ParseText(texts[i], path: "/src/" + Path.GetFileName(f)));
var references = new[] { "System.Private.CoreLib", "System.Runtime", "System.Console", "System.Linq" }
    .Select(n => MetadataReference.CreateFromFile(Path.Combine(args[0], n + ".dll")));
var compilation = CSharpCompilation.Create(Path.GetFileNameWithoutExtension(args[1]), trees, references,
    new CSharpCompilationOptions(OutputKind.ConsoleApplication, deterministic: true));
bool embedded = args[2] == "embedded";
var options = new EmitOptions(pdbFilePath: Path.GetFileName(Path.ChangeExtension(args[1], ".pdb")),
    debugInformationFormat: embedded ? DebugInformationFormat.Embedded : DebugInformationFormat.PortablePdb,
    pdbChecksumAlgorithm: embedded ? System.Security.Cryptography.HashAlgorithmName.SHA256
        : System.Security.Cryptography.HashAlgorithmName.SHA384);
using var dll = File.Create(args[1]);
using var pdb = embedded ? null : File.Create(Path.ChangeExtension(args[1], ".pdb"));
var result = compilation.Emit(dll, pdb, options: options, sourceLinkStream: File.OpenRead(args[3]),
    embeddedTexts: files.Select((f, i) => EmbeddedText.FromSource("/src/" + Path.GetFileName(f), texts[i])));
foreach (var d in result.Diagnostics) Console.Error.WriteLine(d);
return result.Success ? 0 : 1;
