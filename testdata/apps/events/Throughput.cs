// As many small objects as some threads can make and look at: what recording them
// costs is seen in how many fewer they make.
using System.Linq;
using System.Runtime.CompilerServices;
using Common;

namespace Events;

static class Throughput
{
    // A unit is a tree of Nodes, with a text at each of its leaves: 2 KB.
    const int Depth = 4, Nodes = (2 << Depth) - 1, Leaves = 1 << Depth;
    const int UnitsPerVisit = 64;

    static AllocationSite site;

    /// <summary>How many units there were.</summary>
    public static long Units => site.Units;

    public static Lane[] Lanes()
    {
        site = new AllocationSite("Events.Throughput.Trees", Trees,
            new Part(typeof(Tree), Nodes, Nodes * 40), new Part(typeof(string), Leaves, Leaves * 48));
        Site[] sites = [new Site(1, () => site.Run(UnitsPerVisit))];
        return Enumerable.Range(1, App.Int("threads", 2))
            .Select(i => new Lane($"throughput-{i}", Lane.Unpaced, sites)).ToArray();
    }

    sealed class Tree
    {
        public Tree Left, Right;
        public string Text;
    }

    // So that a CPU makes about half a gigabyte a second, as a program does that
    // has something to do with its objects; with none it would be ten times as much.
    const int Looks = 12;

    static ulong seen;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Trees(int n)
    {
        for (int i = 0; i < n; i++)
        {
            Tree tree = Grow(Depth);
            for (int k = 0; k < Looks; k++) seen = Look(tree, (ulong)k);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static ulong Look(Tree tree, ulong hash)
    {
        if (tree.Text == null) return Look(tree.Right, Look(tree.Left, hash));
        foreach (char c in tree.Text) hash = (hash ^ c) * 1099511628211;
        return hash;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static Tree Grow(int depth) => depth == 0
        ? new Tree { Text = new string('x', 12) }
        : new Tree { Left = Grow(depth - 1), Right = Grow(depth - 1) };
}
