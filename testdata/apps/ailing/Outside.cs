using System;
using System.Collections.Generic;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Shop;

/// <summary>What is around the program is the trouble.</summary>
static class Outside
{
    static readonly List<object> kept = new();
    static volatile object newest;

    /// <summary>Threads wait for the answer of a server that gives none: --port says where it listens.</summary>
    public static void Remote()
    {
        for (int i = 0; i < 4; i++) App.Background($"client-{i}", () => Ask(App.Int("port", 0)));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Ask(int port)
    {
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Connect(new IPEndPoint(IPAddress.Loopback, port));
        socket.Send("price?\n"u8);
        socket.Receive(new byte[64]);
    }

    /// <summary>Threads look up a name of which the name server says nothing.</summary>
    public static void Names()
    {
        for (int i = 0; i < 4; i++) App.Background($"names-{i}", () => { while (true) Look(); });
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Look()
    {
        try { newest = Dns.GetHostAddresses("prices.example"); }
        catch (SocketException) { }
    }

    [DllImport("libc")]
    static extern int setrlimit(int resource, in Limit limit);

    struct Limit { public ulong Soft, Hard; }

    /// <summary>Files are opened and not closed, nearly up to the limit.</summary>
    public static void Descriptors()
    {
        setrlimit(7, new Limit { Soft = 600, Hard = 600 });
        string path = typeof(Outside).Assembly.Location;
        while (Directory.GetFiles("/proc/self/fd").Length < 575) kept.Add(File.OpenRead(path));
    }

    [DllImport("libc")]
    static extern int pipe(int[] ends);

    [DllImport("libc"), SuppressGCTransition]
    static extern nint read(int file, ref byte to, nint count);

    static readonly int[] sensor = new int[2];

    /// <summary>It has said that it is ready: what follows may suspend all threads for ever.</summary>
    public static readonly ManualResetEventSlim Ready = new();

    /// <summary>A thread reads in native code without telling the runtime, so that no collection can begin.</summary>
    public static void Holdout()
    {
        pipe(sensor);
        App.Background("sensor", () => { Ready.Wait(); while (true) Poll(); });
        App.Background("slept", () => { while (true) Thread.Sleep(50); }); // once more, and then it is suspended
        Thread sleeps = App.Background("sleeps", () => Thread.Sleep(-1));
        while ((sleeps.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Sleep(1);
        Thread.Sleep(200);
        for (int i = 0; i < 3; i++)
        {
            App.Background($"orders-{i}", () => { while (true) { newest = new byte[1000]; } });
        }
        App.Background("collects", () => { Ready.Wait(); while (true) { GC.Collect(); Thread.Sleep(10); } });
    }

    /// <summary>As Holdout. Threads whose waits have ended are held up, beside threads that wait for ever.</summary>
    public static void HeldUp()
    {
        object monitor = new();
        var handle = new ManualResetEvent(false);
        var permits = new SemaphoreSlim(0);
        var done = new ManualResetEventSlim();
        var task = new TaskCompletionSource();
        Thread main = Thread.CurrentThread;
        (string, Action<int>)[] waits =
        [
            ("join", ms => main.Join(ms)), ("handle", ms => handle.WaitOne(ms)),
            ("any", ms => WaitHandle.WaitAny([handle, new ManualResetEvent(false)], ms)),
            ("monitor", ms => { lock (monitor) Monitor.Wait(monitor, ms); }),
            ("semaphore", ms => permits.Wait(ms)), ("event", ms => done.Wait(ms)), ("task", ms => task.Task.Wait(ms)),
        ];
        foreach (var (name, wait) in waits)
        {
            Thread stays = App.Background("in-" + name, () => wait(-1));
            while ((stays.ThreadState & ThreadState.WaitSleepJoin) == 0) Thread.Sleep(1);
            App.Background("over-" + name, () => { while (true) wait(50); });
        }
        Holdout();
    }

    static long taken;

    /// <summary>Native memory is taken, and never given back: 5 MiB a second.</summary>
    public static void Native()
    {
        App.Background("images", () =>
        {
            for (; ; Thread.Sleep(50)) Take(256 << 10);
        });
        App.Answer = _ => [$"TAKEN {Volatile.Read(ref taken)}"];
        while (Volatile.Read(ref taken) < 64 << 20) Take(1 << 20);
    }

    static unsafe void Take(int bytes)
    {
        NativeMemory.Fill(NativeMemory.Alloc((nuint)bytes), (nuint)bytes, 1);
        Interlocked.Add(ref taken, bytes);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Poll()
    {
        byte b = 0;
        read(sensor[0], ref b, 1);
    }
}
