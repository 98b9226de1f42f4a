// Prints what System.Reflection.Metadata reads in the debug directories of assemblies and in their
// PDBs, one tab-separated line for each fact, for the tests to compare with.
using System;
using System.Collections.Generic;
using System.IO;
using System.IO.Compression;
using System.Linq;
using System.Reflection.Metadata;
using System.Reflection.Metadata.Ecma335;
using System.Reflection.PortableExecutable;
using System.Security.Cryptography;
using System.Text;

Console.SetOut(new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false), 1 << 16));
foreach (var path in args) Witness.Assembly(path);
Console.Out.Flush();

static unsafe class Witness
{
    static readonly Guid Async = new("54FD2AC5-E925-401A-9C2A-F94F171072F8");
    static readonly Guid SourceLink = new("CC110556-A091-4D38-9FEC-25AB9A351A6A");
    static readonly Guid Source = new("0E8A571B-6926-466E-B4AD-8AB04611F5FE");

    public static void Assembly(string path)
    {
        using var pe = new PEReader(File.OpenRead(path));
        Line("F", path);
        MetadataReaderProvider embedded = null;
        foreach (var e in pe.ReadDebugDirectory())
            switch (e.Type)
            {
                case DebugDirectoryEntryType.CodeView:
                    var c = pe.ReadCodeViewDebugDirectoryData(e);
                    Line("V", e.IsPortableCodeView, Hex(c.Guid), c.Age, e.Stamp, c.Path);
                    break;
                case DebugDirectoryEntryType.PdbChecksum:
                    var s = pe.ReadPdbChecksumDebugDirectoryData(e);
                    Line("S", s.AlgorithmName, Convert.ToHexString(s.Checksum.ToArray()));
                    break;
                case DebugDirectoryEntryType.Reproducible:
                    Line("R");
                    break;
                case DebugDirectoryEntryType.EmbeddedPortablePdb:
                    embedded = pe.ReadEmbeddedPortablePdbDebugDirectoryData(e);
                    break;
            }
        if (embedded != null)
            Line("X", Hash(new ReadOnlySpan<byte>(embedded.GetMetadataReader().MetadataPointer,
                embedded.GetMetadataReader().MetadataLength)));
        using var provider = embedded
            ?? MetadataReaderProvider.FromPortablePdbStream(File.OpenRead(Path.ChangeExtension(path, ".pdb")));
        Pdb(provider.GetMetadataReader(), pe);
    }

    static void Pdb(MetadataReader pdb, PEReader pe)
    {
        Line("I", Convert.ToHexString(pdb.DebugMetadataHeader.Id.ToArray()),
            pe.GetMetadataReader().MethodDefinitions.Count);
        foreach (var h in pdb.Documents)
        {
            var d = pdb.GetDocument(h);
            Line("D", Row(h), pdb.GetString(d.Name), Hex(pdb, d.HashAlgorithm),
                Convert.ToHexString(pdb.GetBlobBytes(d.Hash)), Hex(pdb, d.Language));
        }
        foreach (var h in pe.GetMetadataReader().MethodDefinitions) Method(pdb, pe, h);
        foreach (var h in pdb.CustomDebugInformation) Custom(pdb, pdb.GetCustomDebugInformation(h));
    }

    static void Method(MetadataReader pdb, PEReader pe, MethodDefinitionHandle h)
    {
        var info = pdb.GetMethodDebugInformation(h.ToDebugInformationHandle());
        if (info.GetStateMachineKickoffMethod() is { IsNil: false } kickoff) Line("K", Row(h), Row(kickoff));
        if (info.SequencePointsBlob.IsNil) return;
        var points = info.GetSequencePoints().ToList();
        foreach (var p in points)
            Line("P", Row(h), p.Offset, p.IsHidden ? 0 : p.StartLine, p.IsHidden ? 0 : p.StartColumn,
                p.IsHidden ? 0 : p.EndLine, p.IsHidden ? 0 : p.EndColumn, Row(p.Document), p.IsHidden);
        int rva = pe.GetMetadataReader().GetMethodDefinition(h).RelativeVirtualAddress;
        int size = pe.GetMethodBody(rva).GetILBytes().Length;
        for (int il = 0; il < size; il++) Line("B", Row(h), il, Best(points, il));
    }

    // The line that a stack trace shows for an IL offset: StackTraceSymbols.GetSourceLineInfo.
    static string Best(List<SequencePoint> points, int il) =>
        points.TakeWhile(p => p.Offset <= il).Where(p => !p.IsHidden).Select(p => (SequencePoint?)p).LastOrDefault()
            is { } best ? $"{best.StartLine}:{best.StartColumn}:{Row(best.Document)}" : "none";

    static void Custom(MetadataReader pdb, CustomDebugInformation c)
    {
        var kind = pdb.GetGuid(c.Kind);
        var blob = pdb.GetBlobReader(c.Value);
        if (kind == SourceLink) Line("L", Convert.ToBase64String(blob.ReadBytes(blob.Length)));
        if (kind == Async)
        {
            var text = new StringBuilder(((int)blob.ReadUInt32() - 1).ToString());
            while (blob.RemainingBytes > 0)
                text.Append($" {blob.ReadUInt32()}:{blob.ReadUInt32()}:{blob.ReadCompressedInteger()}");
            Line("A", Row(c.Parent), text);
        }
        if (kind == Source)
        {
            int size = blob.ReadInt32();
            byte[] content = blob.ReadBytes(blob.RemainingBytes);
            if (size > 0)
            {
                var to = new MemoryStream();
                new DeflateStream(new MemoryStream(content), CompressionMode.Decompress).CopyTo(to);
                content = to.ToArray();
            }
            Line("E", Row(c.Parent), content.Length, Hash(content));
        }
    }

    static void Line(params object[] fields) => Console.WriteLine(string.Join("\t", fields));
    static int Row(EntityHandle h) => MetadataTokens.GetRowNumber(h);
    static string Hex(MetadataReader r, GuidHandle h) => Hex(h.IsNil ? Guid.Empty : r.GetGuid(h));
    static string Hex(Guid g) => Convert.ToHexString(g.ToByteArray());
    static string Hash(ReadOnlySpan<byte> b) => Convert.ToHexString(SHA256.HashData(b));
}
