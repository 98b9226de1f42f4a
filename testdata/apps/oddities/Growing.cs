using System;
using System.Collections.Generic;
using System.Threading;
using Common;

namespace Oddities;

/// <summary>The steps of a drawing, each of which keeps the step before: a list that is no collection.</summary>
static class Drawing
{
    sealed class Step(Step before, byte[] picture)
    {
        public readonly Step Before = before;
        public readonly byte[] Picture = picture;
    }

    static Step last;

    public static void Start() => App.Background("painter", () =>
    {
        for (int n = 0; ; n++)
        {
            Paint(n);
            Done.One();
            Thread.Sleep(2);
        }
    });

    static void Paint(int n)
    {
        last = new Step(last, new byte[3000 + n % 100]);
        if (last.Picture.Length == 0) last = last.Before;
    }
}

/// <summary>Workers ask for a collection after each picture, "to save memory".</summary>
static class Thumbnails
{
    static readonly List<object[]> kept = [];

    public static void Start()
    {
        for (int i = 0; i < 300; i++)
        {
            var many = new object[5000];
            for (int k = 0; k < many.Length; k++) many[k] = new object();
            kept.Add(many);
        }
        for (int i = 0; i < 2; i++) App.Background($"scaler-{i}", Work);
    }

    static void Work()
    {
        while (true)
        {
            Scale();
            Done.One();
            Thread.Sleep(20);
        }
    }

    static void Scale()
    {
        var picture = new byte[100_000];
        picture[Environment.TickCount & 0xffff] = 1;
        Clean();
    }

    static void Clean()
    {
        GC.Collect();
        GC.WaitForPendingFinalizers();
    }
}
