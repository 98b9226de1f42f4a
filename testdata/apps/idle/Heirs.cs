// Threads of the program's own that have no name. Linux gives each of them the name of the thread that starts it:
// a worker of the pool, the thread of a long-running task, the finalizer.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace Idle
{
    static class Heirs
    {
        public const int Count = 4;

        static readonly ManualResetEvent never = new(false);
        static readonly CountdownEvent begun = new(Count - 1); // all but the native one
        static readonly List<int> tids = new();

        public static void Start()
        {
            Task.Run(Heir).Wait();
            Task.Factory.StartNew(Heir, TaskCreationOptions.LongRunning).Wait();
            Forget();
            GC.Collect();
            GC.WaitForPendingFinalizers();
            begun.Wait();
            App.Answer = command => command == "heirs" ? tids.Select(tid => tid.ToString()) : Array.Empty<string>();
        }

        static void Heir() => new Thread(Wait) { IsBackground = true }.Start();

        static void Wait()
        {
            lock (tids) tids.Add(gettid());
            begun.Signal();
            never.WaitOne();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        static void Forget() => new Finalized();

        class Finalized
        {
            ~Finalized()
            {
                Heir();
                // A thread of a native library, which the runtime never hears of.
                nint pause = NativeLibrary.GetExport(NativeLibrary.Load("libc.so.6"), "pause");
                pthread_create(out _, 0, pause, 0);
            }
        }

        [DllImport("libc")] static extern int gettid();
        [DllImport("libc.so.6")] static extern int pthread_create(out nint thread, nint attributes, nint start, nint argument);
    }
}
