// A program that attacks readers.
//
//   --of memory    writes lies into the memory that an agent shares with the agent's reader, and throws exceptions for
//                  the agent; "lies" is answered with LIES and the number of lies
//   --of source    computes in a method whose source is markup
using System;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Numerics;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using Common;
using Microsoft.Win32.SafeHandles;

namespace Liar;

static class Program
{
    const int ControlSize = 4096;
    static long lies;
    static double sum;

    static void Main(string[] args)
    {
        App.Start(args);
        if (App.Text("of", "memory") == "source") App.Background("computes", () => { while (true) Compute(); });
        else
        {
            App.Background("throws", Throw);
            App.Background("lies", Lie);
        }
        App.Answer = _ => [$"LIES {Interlocked.Read(ref lies)}"];
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }

    static void Throw()
    {
        for (; ; Thread.Sleep(1))
        {
            try { throw new InvalidOperationException("\u001b[31mforged\u202e\"]},</script>"); }
            catch (InvalidOperationException) { }
        }
    }

    /// <summary>
    /// The shared memory has a name in the list of mappings. A write that fails does no harm. Each reader meets lies of
    /// another kind, since a reader may end at the first lie.
    /// </summary>
    static void Lie()
    {
        var random = new Random(1);
        string before = "";
        int kind = -1;
        using SafeFileHandle memory =
            File.OpenHandle("/proc/self/mem", FileMode.Open, FileAccess.ReadWrite, FileShare.ReadWrite);
        for (; ; Thread.Sleep(1))
        {
            string line = File.ReadLines("/proc/self/maps").FirstOrDefault(l => l.Contains("memfd:clrsnap-events"));
            if (line == null) continue;
            if (line != before) (before, kind) = (line, (kind + 1) % 4);
            string[] ends = line.Split(' ')[0].Split('-');
            long from = long.Parse(ends[0], NumberStyles.HexNumber), to = long.Parse(ends[1], NumberStyles.HexNumber);
            for (int i = 0; i < 50; i++)
            {
                try { LieAt(memory, random, kind, from, to - from); }
                catch (IOException) { break; }
            }
        }
    }

    static void LieAt(SafeFileHandle memory, Random random, int kind, long from, long size)
    {
        const int head = 64, tail = 128; // how far the records reach, and have been read
        var lie = new byte[64];
        random.NextBytes(lie);
        long at;
        switch (kind)
        {
            case 0:
                at = random.Next(2) == 0 ? head : tail;
                lie = BitConverter.GetBytes(random.Next(2) == 0 ? random.NextInt64() : random.Next(1 << 20) * 8L);
                break;
            case 1: // the next record is shorter than any record,
            case 2: // or has more frames than bytes
                Span<byte> read = stackalloc byte[8];
                RandomAccess.Read(memory, read, from + tail);
                long next = BitConverter.ToInt64(read), capacity = 1L << BitOperations.Log2((ulong)size);
                at = size - capacity + (next & (capacity - 1));
                BitConverter.TryWriteBytes(lie, kind == 1 ? 8 : 64);
                (lie[4], lie[5], lie[7]) = (1, 0, 0); // a record of that type, with up to 255 frames
                RandomAccess.Write(memory, lie, from + at);
                (lie, at) = (BitConverter.GetBytes(next + 64), head);
                break;
            default:
                at = random.NextInt64(random.Next(2) == 0 ? ControlSize / 8 : size / 8 - 8) * 8;
                if (at < ControlSize) lie = lie[..8]; // a number
                break;
        }
        RandomAccess.Write(memory, lie, from + at);
        Interlocked.Increment(ref lies);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Compute()
    {
        // </script><script>document.title = "forged"</script><img src=x onerror="document.title = 'forged'">
        for (int i = 0; i < 10_000_000; i++) sum += Math.Sqrt(i); // <!-- ]]> &lt;/style> \" "]},"forged":{"
        sum += 1; // ]0;forged [2J 31m
        sum /= 2; // forged, from right to left: ‮
    }
}
