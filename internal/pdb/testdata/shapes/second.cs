using System;

partial class Shapes
{
    readonly int two = Math.Max(
        Environment.ProcessId,
        7);
}

record Pair(int A, string B)
{
    public string Both => A + B;
}
