// Prints the lines of each method of an assembly as System.Reflection.Metadata reads them in its PDB:
// Type.Method, file and line, separated by tabs.
using System;
using System.IO;
using System.Reflection.Metadata;
using System.Reflection.Metadata.Ecma335;
using System.Reflection.PortableExecutable;
using System.Text;

using var image = new PEReader(File.OpenRead(args[0]));
using var provider = MetadataReaderProvider.FromPortablePdbStream(File.OpenRead(Path.ChangeExtension(args[0], ".pdb")));
var metadata = image.GetMetadataReader();
var pdb = provider.GetMetadataReader();
var text = new StringBuilder();
foreach (var h in metadata.MethodDefinitions)
{
    var m = metadata.GetMethodDefinition(h);
    var info = pdb.GetMethodDebugInformation(h.ToDebugInformationHandle());
    if (info.SequencePointsBlob.IsNil) continue;
    foreach (var p in info.GetSequencePoints())
        if (!p.IsHidden)
            text.Append($"{Type(m.GetDeclaringType())}.{metadata.GetString(m.Name)}\t")
                .Append($"{pdb.GetString(pdb.GetDocument(p.Document).Name)}\t{p.StartLine}\n");
}
using (var stdout = new StreamWriter(Console.OpenStandardOutput())) stdout.Write(text);

string Type(TypeDefinitionHandle h)
{
    var t = metadata.GetTypeDefinition(h);
    string name = metadata.GetString(t.Name);
    if (t.IsNested) return Type(t.GetDeclaringType()) + "+" + name;
    string space = metadata.GetString(t.Namespace);
    return space == "" ? name : space + "." + name;
}
