using System.Diagnostics;
using System.IO;
using System.IO.MemoryMappedFiles;
using System.Runtime.InteropServices;
using System.Threading;

namespace Churn;

/// <summary>What a thread does with a lock. Each is written before it can have an effect, or after it must have.</summary>
enum Event { Entering = 1, Entered = 2, Failed = 3, Leaving = 4, Left = 5 }

/// <summary>
/// A ring of entries of 32 bytes in a mapped file, behind a header of 64: the number of the entry, from 1 on and
/// written last; the time in ns of the monotonic clock; the thread's id; the event; the lock; how often the thread
/// holds it. The header has the number of entries in the ring, and how many have been begun.
/// </summary>
static unsafe class Journal
{
    const int entries = 1 << 18, entry = 32, header = 64;

    static byte* at;

    public static void Open(string path)
    {
        const long size = header + (long)entries * entry;
        var file = MemoryMappedFile.CreateFromFile(path, FileMode.Create, null, size);
        file.CreateViewAccessor(0, size).SafeMemoryMappedViewHandle.AcquirePointer(ref at);
        *(long*)at = entries;
    }

    public static void Write(Event what, int gate, int depth)
    {
        int thread = gettid();
        long n = Interlocked.Increment(ref *(long*)(at + 8));
        byte* e = at + header + (n - 1) % entries * entry;
        Volatile.Write(ref *(long*)e, 0);
        *(long*)(e + 8) = Stopwatch.GetTimestamp();
        *(int*)(e + 16) = thread;
        *(int*)(e + 20) = (int)what;
        *(int*)(e + 24) = gate;
        *(int*)(e + 28) = depth;
        Volatile.Write(ref *(long*)e, n);
    }

    [DllImport("libc")] public static extern int gettid();
}
