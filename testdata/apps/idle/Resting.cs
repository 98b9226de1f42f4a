// One thread of each kind that the runtime has for itself, with nothing to do, and threads of the
// program's own that look like them.
using System;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using Common;

namespace Idle
{
    static class Resting
    {
        public const int Workers = 4;

        static readonly ManualResetEvent never = new(false);
        static object alive;

        public static void Start()
        {
            using var met = new Barrier(Workers + 1);
            for (int i = 0; i < Workers; i++) ThreadPool.UnsafeQueueUserWorkItem(_ => met.SignalAndWait(), null);
            met.SignalAndWait();
            var listener = new TcpListener(IPAddress.Loopback, 0);
            listener.Start();
            alive = new object[]
            {
                new Timer(static _ => { }, null, 3600_000, Timeout.Infinite),
                ThreadPool.RegisterWaitForSingleObject(never, static (_, _) => { }, null, Timeout.Infinite, true),
                listener, listener.AcceptSocketAsync(),
            };
            App.Background(".NET Timer", System.Threading.TimerQueue.TimerThread);
            App.Background(".NET TP Worker", System.Threading.PortableThreadPool.WorkerThread.WorkerThreadStart);
            App.Background(".NET EventPipe", static () => never.WaitOne());
        }
    }
}

namespace System.Threading
{
    // Types of the program's own with names of the runtime's.
    static class TimerQueue
    {
        static readonly ManualResetEvent never = new(false);

        public static void TimerThread() => never.WaitOne();
    }

    static class PortableThreadPool
    {
        public static class WorkerThread
        {
            public static void WorkerThreadStart() => LowLevelLifoSemaphore.Wait();
        }
    }

    static class LowLevelLifoSemaphore
    {
        public static void Wait() => TimerQueue.TimerThread();
    }
}
