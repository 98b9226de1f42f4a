// Out of managed code, and back in. The method that makes the native call
// announces its own stack: native frames come on top of it.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Scenarios;

static unsafe class Native
{
    struct TimeSpec { public long Seconds, Nanoseconds; }

    [DllImport("libc")] static extern int nanosleep(TimeSpec* wanted, TimeSpec* left);
    [DllImport("libc")] static extern int poll(void* fds, nuint count, int milliseconds);
    [DllImport("libc", SetLastError = true)] static extern nint read(int fd, byte[] buffer, nint size);
    [DllImport("libc")] static extern int pipe(int* fds);
    [DllImport("libc")] static extern void qsort(int* values, nuint count, nuint size, delegate* unmanaged[Cdecl]<int*, int*, int> compare);
    [DllImport("libc", EntryPoint = "qsort")] static extern void qsortDelegate(int[] values, nuint count, nuint size, Compare compare);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    delegate int Compare(int* a, int* b);

    const long Long = 100_000;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Sleep()
    {
        var wanted = new TimeSpec { Seconds = Long };
        Here.Announce(Environment.StackTrace);
        return nanosleep(&wanted, null) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Poll()
    {
        Here.Announce(Environment.StackTrace);
        return poll(null, 0, -1) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int EmptyPipe()
    {
        int* fds = stackalloc int[2];
        if (pipe(fds) != 0) throw new InvalidOperationException("pipe");
        return fds[0];
    }

    // Marshals an array and keeps errno: the call goes through an IL stub.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Read()
    {
        int fd = EmptyPipe();
        var buffer = new byte[16];
        Here.Announce(Environment.StackTrace);
        return (int)read(fd, buffer, buffer.Length) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int ReadByPointer()
    {
        int fd = EmptyPipe();
        byte* buffer = stackalloc byte[16];
        var readPointer = (delegate* unmanaged<int, byte*, nint, nint>)NativeLibrary.GetExport(NativeLibrary.Load("libc.so.6"), "read");
        Here.Announce(Environment.StackTrace);
        return (int)readPointer(fd, buffer, 16) + 1;
    }

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static int CompareAndBlock(int* a, int* b) => Here.Block() + *a - *b;

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static int CompareAndSleep(int* a, int* b) => Sleep() + *a - *b;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int SortByFunctionPointer()
    {
        int* values = stackalloc int[] { 3, 1, 2 };
        qsort(values, 3, sizeof(int), &CompareAndBlock);
        return values[0];
    }

    // Managed, native, managed, native.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int SortAndSleep()
    {
        int* values = stackalloc int[] { 3, 1, 2 };
        qsort(values, 3, sizeof(int), &CompareAndSleep);
        return values[0];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CompareInDelegate(int* a, int* b) => Here.Block() + *a - *b;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int SortByDelegate()
    {
        int[] values = [3, 1, 2];
        Compare compare = CompareInDelegate;
        qsortDelegate(values, 3, sizeof(int), compare);
        GC.KeepAlive(compare);
        return values[0];
    }
}
