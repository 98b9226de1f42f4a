// A program that attacks readers.
//
//   --of memory    writes lies into the memory that an agent shares with the agent's reader, and throws exceptions for
//                  the agent; "lies" is answered with LIES and the number of lies
//   --of source    computes in a method whose source is markup
using System;
using System.Globalization;
using System.IO;
using System.Linq;
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

    /// <summary>The shared memory has a name in the list of mappings. A write that fails does no harm.</summary>
    static void Lie()
    {
        var random = new Random(1);
        using SafeFileHandle memory =
            File.OpenHandle("/proc/self/mem", FileMode.Open, FileAccess.ReadWrite, FileShare.ReadWrite);
        for (; ; Thread.Sleep(1))
        {
            string line = File.ReadLines("/proc/self/maps").FirstOrDefault(l => l.Contains("memfd:clrsnap-events"));
            if (line == null) continue;
            string[] ends = line.Split(' ')[0].Split('-');
            long from = long.Parse(ends[0], NumberStyles.HexNumber), to = long.Parse(ends[1], NumberStyles.HexNumber);
            for (int i = 0; i < 50; i++)
            {
                try { LieAt(memory, random, from, to - from); }
                catch (IOException) { break; }
            }
        }
    }

    static void LieAt(SafeFileHandle memory, Random random, long from, long size)
    {
        var lie = new byte[64];
        random.NextBytes(lie);
        long at;
        switch (random.Next(4))
        {
            case 0: // a number of the control page
                at = random.Next(ControlSize / 8) * 8;
                lie = lie[..8];
                break;
            case 1: // how far the records reach, and have been read
                at = random.Next(2) == 0 ? 64 : 128;
                lie = BitConverter.GetBytes(random.Next(2) == 0 ? random.NextInt64() : random.Next(1 << 20) * 8L);
                break;
            case 2: // a record that says how long it is, and what
                at = random.NextInt64(ControlSize / 8, size / 8 - 8) * 8;
                BitConverter.TryWriteBytes(lie, new[] { 64, 4096, 1 << 20, -1 }[random.Next(4)]);
                lie[4] = (byte)random.Next(20);
                break;
            default:
                at = random.NextInt64(size / 8 - 8) * 8;
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
