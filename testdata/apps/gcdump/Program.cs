// Reads a .gcdump file with Microsoft's own reader: Microsoft.Diagnostics.Monitoring.EventPipe.dll of dotnet-trace,
// which is compiled from the sources of dotnet-gcdump. Prints a line for the file, "TOTALS" and numbers, and a line for
// each type: "CLASS<tab>MODULE<tab>COUNT<tab>BYTES".
//
//   Program FOLDER FILE     FOLDER has the assemblies
using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.Loader;

namespace Witness;

static class Program
{
    static int Main(string[] args)
    {
        string folder = args[0];
        AssemblyLoadContext.Default.Resolving += (context, name) =>
        {
            string file = Path.Combine(folder, name.Name + ".dll");
            return File.Exists(file) ? context.LoadFromAssemblyPath(file) : null;
        };
        Assembly reader = AssemblyLoadContext.Default.LoadFromAssemblyPath(
            Path.Combine(folder, "Microsoft.Diagnostics.Monitoring.EventPipe.dll"));
        dynamic dump = Activator.CreateInstance(reader.GetType("GCHeapDump", true), args[1]);
        new Reading(reader, dump.MemoryGraph).Print(dump);
        return 0;
    }
}

sealed class Reading
{
    readonly dynamic graph, node, type;
    readonly Type index;
    readonly int invalid = -1;

    public Reading(Assembly reader, dynamic graph)
    {
        this.graph = graph;
        node = graph.AllocNodeStorage();
        type = graph.AllocTypeNodeStorage();
        index = reader.GetType("Graphs.NodeIndex", true);
    }

    dynamic Node(int i) => graph.GetNode((dynamic)Enum.ToObject(index, i), node);

    List<int> Children(int i)
    {
        dynamic n = Node(i);
        var list = new List<int>();
        for (int c = (int)n.GetFirstChildIndex(); c != invalid; c = (int)n.GetNextChildIndex()) list.Add(c);
        return list;
    }

    public void Print(dynamic dump)
    {
        int nodes = (int)graph.NodeCount;
        long references = 0, bytes = 0;
        var byType = new SortedDictionary<string, (long Count, long Bytes)>(StringComparer.Ordinal);
        for (int i = 0; i < nodes; i++)
        {
            dynamic n = Node(i);
            int size = n.Size;
            dynamic t = n.GetType(type);
            string key = (string)t.Name + "\t" + (string)t.ModuleName;
            byType.TryGetValue(key, out var sum);
            byType[key] = (sum.Count + 1, sum.Bytes + size);
            references += Children(i).Count;
            bytes += size;
        }
        if (bytes != (long)graph.TotalSize) throw new Exception($"{bytes} bytes, not {graph.TotalSize}");
        Console.WriteLine($"TOTALS {nodes} {references} {Reachable(nodes)} {(int)dump.ProcessID} " +
            $"{dump.DotNetHeapInfo.Segments.Count} {dump.CreationTool}");
        foreach (var (key, sum) in byType) Console.WriteLine($"{key}\t{sum.Count}\t{sum.Bytes}");
    }

    // Reachable counts the nodes that can be reached from the root.
    int Reachable(int nodes)
    {
        var met = new bool[nodes];
        var left = new Stack<int>();
        int count = 0;
        void Meet(int i)
        {
            if (met[i]) return;
            met[i] = true;
            count++;
            left.Push(i);
        }
        Meet((int)graph.RootIndex);
        while (left.Count > 0)
            foreach (int c in Children(left.Pop())) Meet(c);
        return count;
    }
}
