// Out of managed code, and back in. The method that makes the native call
// announces its own stack: native frames come on top of it. System calls that a
// signal's handler ends are made again: the runtime handles SIGCONT on any thread.
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
    [DllImport("libc")]
    static extern void qsort(
        int* values, nuint count, nuint size, delegate* unmanaged[Cdecl]<int*, int*, int> compare);
    [DllImport("libc", EntryPoint = "qsort")]
    static extern void qsortDelegate(int[] values, nuint count, nuint size, Compare compare);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    delegate int Compare(int* a, int* b);

    const long Long = 100_000;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Sleep()
    {
        var wanted = new TimeSpec { Seconds = Long };
        Here.Announce(Environment.StackTrace);
        while (nanosleep(&wanted, null) != 0) { }
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Poll()
    {
        Here.Announce(Environment.StackTrace);
        while (poll(null, 0, -1) < 0) { }
        return 1;
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

    [DllImport("libc", SetLastError = true)] static extern int usleep(uint microseconds);
    [DllImport("libc", SetLastError = true)] static extern int sleep(uint seconds);
    [DllImport("libc", SetLastError = true)] static extern nint write(int fd, string text, nint size);

    // The two functions have the same parameters: one IL stub serves both.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int SleepByStub()
    {
        usleep(1);
        Here.Announce(Environment.StackTrace);
        uint left = (uint)Long;
        while (left > 0) left = (uint)sleep(left);
        return 1;
    }

    // Marshals a string, for which the pipe has no room: it holds 64 KB.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Write()
    {
        int* fds = stackalloc int[2];
        if (pipe(fds) != 0) throw new InvalidOperationException("pipe");
        var text = new string('x', 1 << 16);
        if (write(fds[1], text, text.Length) != text.Length) throw new InvalidOperationException("write");
        Here.Announce(Environment.StackTrace);
        return (int)write(fds[1], text, 1) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int ReadByPointer()
    {
        int fd = EmptyPipe();
        byte* buffer = stackalloc byte[16];
        var readPointer = (delegate* unmanaged<int, byte*, nint, nint>)
            NativeLibrary.GetExport(NativeLibrary.Load("libc.so.6"), "read");
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

    struct StackArea { public byte* Base; public int Flags; public nuint Size; }

    struct SignalAction
    {
        public delegate* unmanaged[Cdecl]<int, void> Handler;
        public fixed ulong Mask[16];
        public int Flags;
        public nint Restorer;
    }

    [DllImport("libc")] static extern byte* mmap(void* at, nuint size, int access, int flags, int fd, nint offset);
    [DllImport("libc")] static extern int sigaltstack(StackArea* area, StackArea* old);
    [DllImport("libc")] static extern int sigaction(int number, SignalAction* action, SignalAction* old);
    [DllImport("libc")] static extern int raise(int number);

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static void Handle(int number) => Here.Block();

    // Managed code on a stack of its own, which a signal's handler runs on; the method that
    // has caused the signal is on the thread's. That lies above, as the runtime wants it.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int OnSignalStack()
    {
        const int Size = 1 << 20, SIGUSR2 = 12, OnStack = 0x08000000, ReadWrite = 3, PrivateAtOnlyThisPlace = 0x100022;
        var action = new SignalAction { Handler = &Handle, Flags = OnStack };
        byte* at = (byte*)((nuint)(&action) & ~(nuint)0xfff), stack = null;
        while (stack != at) stack = mmap(at -= 4 * Size, Size, ReadWrite, PrivateAtOnlyThisPlace, -1, 0);
        var area = new StackArea { Base = stack, Size = Size };
        if (sigaltstack(&area, null) != 0 || sigaction(SIGUSR2, &action, null) != 0)
            throw new InvalidOperationException("no signal stack");
        return raise(SIGUSR2) + 1;
    }
}
