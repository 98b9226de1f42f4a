// The native library: P/Invokes into shares.c, and the call back from it.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using Common;

namespace Shares;

static unsafe class Native
{
    const string Library = "shares";

    [DllImport(Library)] public static extern long shares_cpu();
    [DllImport(Library)] public static extern long shares_cpu_of(int tid);
    [DllImport(Library)] public static extern double shares_cpu_cost();
    [DllImport(Library)] static extern ulong shares_spin(long ns);
    [DllImport(Library)] static extern ulong shares_call_back(long ns, delegate* unmanaged[Cdecl]<long, ulong> rest);
    [DllImport(Library)] static extern int shares_sleep(long ns);
    [DllImport(Library)] static extern int shares_read(int fd);
    [DllImport(Library)] public static extern int shares_write(int fd);
    [DllImport(Library)] static extern int shares_poll(int milliseconds);
    [DllImport("libc")] static extern int pipe(int* fds);
    [DllImport("libc")] public static extern int gettid();

    public static void Load(string path) => NativeLibrary.SetDllImportResolver(typeof(Native).Assembly,
        (name, _, _) => name == Library ? NativeLibrary.Load(path) : 0);

    /// <summary>Computes in native code.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Spin(long ns) => Sink.Take(shares_spin(ns));

    /// <summary>Computes half in native code, half in managed code that it calls.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void CallBack(long ns) => Sink.Take(shares_call_back(ns, &CalledBack));

    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    static ulong CalledBack(long ns)
    {
        Meter m = Meter.Start();
        Cpu.Compute(ns);
        Worker.Current.SpentSince("Shares.Native.CalledBack", m);
        return 1;
    }

    /// <summary>Sleeps in native code.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Sleep(long ns)
    {
        if (shares_sleep(ns) != 1) App.Fail("nanosleep was interrupted");
    }

    /// <summary>Polls nothing until a time is over.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Poll(long ns) => shares_poll((int)(ns / 1_000_000));

    /// <summary>A pipe of its own for each thread that reads.</summary>
    public static (int Read, int Write) Pipe()
    {
        int* fds = stackalloc int[2];
        if (pipe(fds) != 0) App.Fail("pipe");
        return (fds[0], fds[1]);
    }

    /// <summary>Blocks in read(2) until somebody writes.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Read(int fd)
    {
        if (shares_read(fd) != 1) App.Fail("read from the pipe");
    }
}
